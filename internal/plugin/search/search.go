// Package search finds texts by words: the tools of a fleet, without asking a server.
package search

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
)

// The parameters of Okapi ranking, with their usual values.
const (
	saturation = 1.2
	length     = 0.75
	// nameWeight is how many times a word of a name counts.
	nameWeight = 3
)

// Document is something that can be found.
type Document struct {
	Name, Text string
}

// Rank returns the indexes of the documents that have a word of the query, the best first.
func Rank(documents []Document, query string) []int {
	wanted := words(query)
	counts, total := make([]map[string]int, len(documents)), 0
	sizes, having := make([]int, len(documents)), map[string]int{}
	for i, document := range documents {
		counts[i] = map[string]int{}
		for _, word := range words(document.Name) {
			counts[i][word] += nameWeight
		}
		for _, word := range words(document.Text) {
			counts[i][word]++
		}
		for word, count := range counts[i] {
			sizes[i] += count
			having[word]++
		}
		total += sizes[i]
	}
	average := float64(max(total, 1)) / float64(max(len(documents), 1))
	scores := make([]float64, len(documents))
	var found []int
	for i := range documents {
		for _, word := range wanted {
			count := float64(counts[i][word])
			if count == 0 {
				continue
			}
			rarity := math.Log(1 + (float64(len(documents)-having[word])+0.5)/(float64(having[word])+0.5))
			scores[i] += rarity * count * (saturation + 1) / (count + saturation*(1-length+length*float64(sizes[i])/average))
		}
		if scores[i] > 0 {
			found = append(found, i)
		}
	}
	slices.SortStableFunc(found, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	return found
}

// words are those of a text or of a name such as close_ticket, closeTicket or tickets/close, in lower
// case. A plural is found by its singular, and the other way around.
func words(text string) []string {
	var all []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			all = append(all, strings.TrimSuffix(strings.ToLower(word.String()), "s"))
			word.Reset()
		}
	}
	lower := false
	for _, r := range text {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
			lower = false
			continue
		case unicode.IsUpper(r) && lower:
			end()
		}
		word.WriteRune(r)
		lower = unicode.IsLower(r)
	}
	end()
	return all
}

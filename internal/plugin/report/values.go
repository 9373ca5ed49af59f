package report

import (
	"fmt"
	"slices"
	"strings"
)

// shortest is how many bytes a value must have to be looked for in texts. Shorter ones are part of other words.
const shortest = 6

// ellipsis ends a text that the manager has cut, perhaps in the middle of a value.
const ellipsis = "…"

// Values are what must not be in any text of a report.
type Values struct {
	known   map[string]bool     // each with whether its encodings are known, too
	names   map[string]bool     // of objects and images, which are no values
	byStart map[string][]string // by the first bytes
	starts  [1 << 16]bool       // by the first two bytes, which tell of most places of a text that no value is there
	sorted  bool                // whether each list of byStart is sorted
}

// NewValues returns an empty set.
func NewValues() *Values {
	return &Values{known: map[string]bool{}, names: map[string]bool{}, byStart: map[string][]string{}}
}

// marker stands for a value.
func marker(size int) string { return fmt.Sprintf("<removed, %d bytes>", size) }

// Add adds a value with everything that a program could make of it before it writes it: what of it can stand alone, such
// as its lines, the password of a URL, and the texts in JSON, and all of these in the encodings that logs and messages
// have. Of its parts, ordinary words are left out.
func (v *Values) Add(value string) {
	v.addWhole(value)
	v.addParts(parts(value))
}

// AddWord is Add for a word of a command. A word may be a command itself, and may be ordinary.
func (v *Values) AddWord(word string) {
	v.addParts([]string{word})
	v.addParts(parts(word))
	for _, separator := range []string{"=", ": "} {
		if _, value, found := strings.Cut(word, separator); found {
			v.addParts([]string{value})
		}
	}
	v.addParts(wordsOf(word))
}

func (v *Values) addParts(parts []string) {
	for _, part := range parts {
		if len(part) >= shortest && !v.isOrdinary(part) {
			v.addWhole(part)
		}
	}
}

// addWhole adds a value of which a program would write all or nothing.
func (v *Values) addWhole(value string) {
	for _, form := range forms(value) {
		if len(form) < shortest || v.known[form] {
			continue
		}
		v.add(form)
		for _, encoded := range encodings(form) {
			v.add(encoded)
		}
		v.known[form] = true
	}
}

// AddAll adds what another set has.
func (v *Values) AddAll(other *Values) {
	for value := range other.known {
		v.add(value)
	}
}

func (v *Values) add(value string) {
	if _, isKnown := v.known[value]; isKnown || len(value) < shortest {
		return
	}
	v.known[value] = false
	start := value[:shortest]
	v.byStart[start] = append(v.byStart[start], value)
	v.starts[firstTwo(value)] = true
	v.sorted = false
}

// Remove replaces all values in a text. What several values cover, in whole or in part, becomes one marker, so that no
// rest of a longer value stays beside a shorter one.
func (v *Values) Remove(words string) string {
	if len(v.known) == 0 {
		return words
	}
	v.sort()
	var out strings.Builder
	written, begin, end := 0, 0, 0 // what was written, and the place that is being removed
	flush := func() {
		if end > begin {
			out.WriteString(words[written:begin])
			out.WriteString(marker(end - begin))
			written = end
		}
	}
	for i := 0; i+shortest <= len(words); i++ {
		if !v.starts[firstTwo(words[i:])] {
			continue
		}
		size := v.match(words[i:])
		if size == 0 {
			continue
		}
		if i > end || end == 0 {
			flush()
			begin = i
		}
		end = max(end, i+size)
	}
	flush()
	if written == 0 {
		return words
	}
	out.WriteString(words[written:])
	return out.String()
}

func firstTwo(words string) int { return int(words[0])<<8 | int(words[1]) }

// match is how many bytes of a value a text begins with. A value may have been cut.
func (v *Values) match(words string) int {
	values := v.byStart[words[:shortest]]
	if len(values) == 0 {
		return 0
	}
	at, _ := slices.BinarySearch(values, words)
	longest := 0 // what the text has in common with any value: one of its neighbors has most
	for _, near := range values[max(at-1, 0):min(at+1, len(values))] {
		longest = max(longest, commonPrefix(words, near))
	}
	cut := strings.LastIndex(words[:min(longest+len(ellipsis), len(words))], ellipsis)
	if cut < shortest {
		cut = 0
	}
	return max(cut, wholeMatch(values, words[:longest]))
}

// wholeMatch is the size of the longest of sorted values that a text begins with. It is at or before the place of the
// text; if another value is there, what the two have in common says where to look next.
func wholeMatch(values []string, words string) int {
	for len(words) >= shortest {
		at, found := slices.BinarySearch(values, words)
		if found {
			return len(words)
		}
		if at == 0 {
			return 0
		}
		size := commonPrefix(words, values[at-1])
		if size == len(values[at-1]) {
			return size
		}
		words = words[:size]
	}
	return 0
}

func commonPrefix(a, b string) int {
	size := 0
	for size < len(a) && size < len(b) && a[size] == b[size] {
		size++
	}
	return size
}

func (v *Values) sort() {
	if v.sorted {
		return
	}
	for _, values := range v.byStart {
		slices.Sort(values)
	}
	v.sorted = true
}

package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/bench/stats"
)

const nothing = "–"

// Markdown is the whole report.
func Markdown(r *Run) string {
	var b strings.Builder
	b.WriteString(facts(r))
	b.WriteString("\n" + goalTable(r) + "\n" + headroom(r))
	for _, w := range r.Workloads {
		fmt.Fprintf(&b, "\n### %s\n\n%s", heading(w), table(r, w))
	}
	return b.String()
}

// heading names a workload, also as -only does.
func heading(w Workload) string { return w.Title + " (`" + w.Name + "`)" }

// table has a row for each system that took part in a workload.
func table(r *Run, w Workload) string {
	var b strings.Builder
	best := comparable(r, w)
	b.WriteString("| |")
	columns := 1
	for i, m := range w.Metrics {
		b.WriteString(" " + m.Title)
		if i == 0 {
			b.WriteString(" (least–most)")
		}
		b.WriteString(" |")
		columns++
		if m.Ratio {
			b.WriteString(" ÷ L3 [95 %] |")
			columns++
		}
	}
	if best != "" {
		b.WriteString(" " + w.Metrics[0].Title + ": times better than the best Node.js peer |")
		columns++
	}
	b.WriteString("\n" + strings.Repeat("|---", columns) + "|\n")
	var notes strings.Builder
	for _, s := range r.Systems {
		if !r.tookPart(w.Name, s.Name) {
			continue
		}
		fmt.Fprintf(&b, "| %s |", s.Title)
		for i, m := range w.Metrics {
			b.WriteString(" " + value(r.summary(w.Name, s.Name, m.Key), i == 0) + " |")
			if m.Ratio {
				b.WriteString(" " + ratio(r.ratio(w.Name, s.Name, Base, m.Key), s.Name == Base) + " |")
			}
		}
		if best != "" {
			b.WriteString(" " + better(r, w, s, best) + " |")
		}
		b.WriteString("\n")
		for _, note := range r.notes(w.Name, s.Name) {
			fmt.Fprintf(&notes, "- %s: %s\n", s.Title, short(note))
		}
	}
	if notes.Len() > 0 {
		b.WriteString("\n" + notes.String())
	}
	return b.String()
}

// value is a median, and between what and what the rounds were.
func value(s stats.Summary, spread bool) string {
	if s.N == 0 {
		return nothing
	}
	if !spread || s.N == 1 {
		return number(s.Median)
	}
	return number(s.Median) + " (" + number(s.Min) + "–" + number(s.Max) + ")"
}

func ratio(r stats.Ratio, base bool) string {
	switch {
	case base:
		return "1"
	case r.N == 0:
		return nothing
	case r.N < fewestForBounds:
		return number(r.Median)
	}
	return fmt.Sprintf("%s [%s, %s]", number(r.Median), number(r.Low), number(r.High))
}

// fewestForBounds is how many rounds say anything about confidence.
const fewestForBounds = 5

// comparable is the best peer, if the first metric is one to be several times of.
func comparable(r *Run, w Workload) string {
	if !w.Metrics[0].Ratio {
		return ""
	}
	return r.bestPeer(w.Name, w.Metrics[0])
}

// better is how many times better one of ours is than the best peer.
func better(r *Run, w Workload, s System, best string) string {
	if s.Kind != Ours {
		return nothing
	}
	ours, theirs := s.Name, best
	if !w.Metrics[0].More {
		ours, theirs = best, s.Name
	}
	found := r.ratio(w.Name, ours, theirs, w.Metrics[0].Key)
	if found.N == 0 {
		return nothing
	}
	return number(found.Median)
}

// short is a note that fits into a page.
func short(note string) string {
	const most = 160
	note = strings.Join(strings.Fields(note), " ")
	if len(note) > most {
		note = note[:most] + "…"
	}
	return note
}

// number has three digits that matter, and commas between thousands.
func number(v float64) string {
	switch abs := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return nothing
	case abs >= 999.5: // which is rounded up to a thousand
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	case abs >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case abs >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case abs >= 0.1 || v == 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

func thousands(digits string) string {
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

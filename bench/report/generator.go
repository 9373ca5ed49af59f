package report

import (
	"fmt"
	"slices"
	"strings"
)

const (
	echoOnly = "L2"
	// enoughHeadroom is how many times faster than a system the generator has to be for
	// the system to be what is measured.
	enoughHeadroom = 3
)

// headroom says for which systems the generator is fast enough: by what factor L2, which
// does nothing but answer, is faster than each.
func headroom(r *Run) string {
	var b strings.Builder
	var unchecked []string
	for _, w := range r.Workloads {
		metric := w.Metrics[0]
		if !r.tookPart(w.Name, echoOnly) {
			unchecked = append(unchecked, w.Name)
			continue
		}
		var holds, fails []string
		for _, s := range r.Systems {
			// L1 has no HTTP that L2 could be compared with.
			found := r.ratio(w.Name, echoOnly, s.Name, metric.Key)
			if found.N == 0 || s.Name == echoOnly || s.Name == "L1" {
				continue
			}
			text := fmt.Sprintf("%s (%s)", r.title(s.Name), number(found.Median))
			if found.Median >= enoughHeadroom {
				holds = append(holds, text)
			} else {
				fails = append(fails, text)
			}
		}
		fmt.Fprintf(&b, "- %s: %s: %s. %s: %s.\n", w.Title, "enough for", list(holds), "Not for", list(fails))
	}
	if b.Len() == 0 {
		return ""
	}
	text := fmt.Sprintf("How many times faster than each system L2 is, by the rounds that both have. Below %d, the generator is part of what is measured, and the ratio to L3 is nearer to 1 than it would be with a faster one.\n\n%s", enoughHeadroom, b.String())
	if len(unchecked) > 0 {
		text += "- Not checked, because L2 takes no part: " + strings.Join(slices.Compact(unchecked), ", ") + ".\n"
	}
	return text
}

func list(items []string) string {
	if len(items) == 0 {
		return "none"
	}
	return strings.Join(items, ", ")
}

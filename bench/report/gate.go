package report

import (
	"fmt"
	"strings"
)

const goalHead = "| | ratio | goal | estimate | bounds of 95 % | |\n|---|---|---|---|---|---|\n"

// goalTable says of each goal whether it is met.
func goalTable(r *Run) string {
	var b strings.Builder
	for _, j := range judge(r) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", j.title, j.compared, j.wanted(), j.estimate(), j.bounds(), j.verdict)
	}
	if b.Len() == 0 {
		return ""
	}
	return goalHead + b.String()
}

// Summary is the goals that are not met, in lines for who reads the end of a run.
func Summary(r *Run) string {
	var b strings.Builder
	for _, j := range judge(r) {
		if j.verdict == Met {
			continue
		}
		fmt.Fprintf(&b, "  %-26s %s, %s: %s %s, wanted %s\n", strings.Trim(string(j.verdict), "*"), j.title, j.compared, j.estimate(), j.bounds(), j.wanted())
	}
	return tally(r) + b.String()
}

// tally is how many goals there are of each verdict.
func tally(r *Run) string {
	count := map[Verdict]int{}
	all := judge(r)
	for _, j := range all {
		count[j.verdict]++
	}
	return fmt.Sprintf("%d of %d goals are met, %d missed, %d not decided.\n", count[Met], len(all), count[Missed], len(all)-count[Met]-count[Missed])
}

// Regressions are the goals that a page does not say were missed and that a run now misses
// by more than is tolerated, in a sentence each. Only ratios and counts are goals, so a slower
// machine by itself is no regression.
func Regressions(r *Run, page string) (found []string) {
	before := notMissedBefore(page)
	for _, j := range judge(r) {
		if before[key(j.title, j.compared)] && j.isFarOff() {
			found = append(found, fmt.Sprintf("%s, %s: it is %s %s, was not missed before, and is to be %s (%.0f %% beyond that is tolerated)",
				j.title, j.compared, j.estimate(), j.bounds(), j.wanted(), 100*regressionTolerance))
		}
	}
	return found
}

// notMissedBefore reads the goals that the table of a page says are met, or not decided. A
// goal that is not in it, under this name, is new.
func notMissedBefore(page string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch Verdict(strings.TrimSpace(cells[len(cells)-1])) {
		case Met, Undecided:
			if len(cells) >= 5 {
				found[key(cells[0], cells[1])] = true
			}
		}
	}
	return found
}

func key(title, compared string) string {
	return strings.TrimSpace(title) + " | " + strings.TrimSpace(compared)
}

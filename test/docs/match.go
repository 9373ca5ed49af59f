package docs

import (
	"regexp"
	"strings"
)

var (
	// loose are the parts of a documented line that need not be the same: what the page leaves out, times, and the
	// width of columns.
	loose    = regexp.MustCompile(`…|[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d)(?:[0-9]+(?:s|m|h))?\b|[ \t]+`)
	duration = `[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d)(?:[0-9]+(?:s|m|h))?`
)

// Match says whether a command printed what its page shows. A line of … stands for any number of lines, and … in a line
// for anything. A duration stands for any duration, and spaces stand for any number of spaces.
func Match(want, got string) bool {
	var pattern strings.Builder
	pattern.WriteString(`^`)
	for line := range strings.SplitSeq(strings.TrimSpace(want), "\n") {
		line = strings.TrimSpace(line)
		if line == "…" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		rest := 0
		for _, at := range loose.FindAllStringIndex(line, -1) {
			pattern.WriteString(regexp.QuoteMeta(line[rest:at[0]]))
			switch part := line[at[0]:at[1]]; {
			case part == "…":
				pattern.WriteString(`.*`)
			case strings.TrimSpace(part) == "":
				pattern.WriteString(`[ \t]+`)
			default:
				pattern.WriteString(duration)
			}
			rest = at[1]
		}
		pattern.WriteString(regexp.QuoteMeta(line[rest:]) + `[ \t]*\n`)
	}
	pattern.WriteString(`$`)
	var lines strings.Builder
	for line := range strings.SplitSeq(strings.TrimSpace(got), "\n") {
		lines.WriteString(strings.TrimSpace(line) + "\n")
	}
	return regexp.MustCompile(pattern.String()).MatchString(lines.String())
}

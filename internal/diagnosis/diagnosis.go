// Package diagnosis finds the lines in a dead process's standard error that say why it
// died. Stack traces and usage texts are long, and what they are about is one line. The
// adapter and the manager both use it.
package diagnosis

import (
	"regexp"
	"slices"
	"strings"
)

const (
	// MostBytes bounds what Lines returns: a status has room for it, and for the words
	// around it.
	MostBytes = 768

	firstLines = 3
	lastLines  = 5

	// gap stands for lines, or parts of a line, that are left out.
	gap = "…"
	// wholeLines are sure to have room, however long the others are.
	wholeLines = 4
)

// Lines returns the lines of standard error that say why a process ended. The head is the
// first that the process wrote, if the tail is not everything. The first three lines stay
// and five more: those that name an error, and then the last. Stack frames are left out,
// unless there is nothing else.
func Lines(head, tail string) string {
	lines := split(head)
	if len(lines) > 0 {
		lines = append(lines, gap)
	}
	lines = append(lines, split(tail)...)
	kept := withoutNoise(lines)
	if len(kept) == 0 {
		kept = places(lines)
	}
	return render(lines, kept, choose(lines, kept))
}

// split returns the lines of a text that have something in them.
func split(text string) (lines []string) {
	for line := range strings.SplitSeq(strings.ToValidUTF8(text, "\uFFFD"), "\n") {
		if line = strings.TrimRight(line, " \t\r"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// places are the indexes of all lines but of those that stand for a gap.
func places(lines []string) (at []int) {
	for i, line := range lines {
		if line != gap {
			at = append(at, i)
		}
	}
	return at
}

var (
	// naming are lines that name an error. In ModuleNotFoundError the word has no
	// beginning of its own, and in panicked no end.
	naming = regexp.MustCompile(`(?i)(error|exception)s?\b|\b(fatal|panic|panicked|cannot|can't|could not|failed|not found|no such|denied)\b`)

	// frame is a line of a stack trace, of Node.js, Java and .NET, of Ruby, and of Python.
	frame = regexp.MustCompile(`^\s+(at|from) \S|^\s*\.\.\. \d+ (more|common frames)|^\s+File ".*", line \d+`)
	// goFile is the second line of a frame of Go. The function is on the line before it.
	goFile = regexp.MustCompile(`^\t\S.*\.go:\d+( \+0x[0-9a-f]+)?$`)
	// trailer are lines that say nothing by themselves.
	trailer = regexp.MustCompile(`^(Node\.js v[\d.]+|Bun v[\d.]+.*|goroutine \d+ .*:|Traceback \(most recent call last\):|exit status \d+)$|^[\s^~|{}()\[\];,]*$`)
)

// withoutNoise returns the indexes of lines that are no part of a stack trace.
func withoutNoise(lines []string) (at []int) {
	inPython := false // the lines after a frame of Python are its source
	for i, line := range lines {
		isPython := strings.HasPrefix(strings.TrimLeft(line, " \t"), `File "`) && frame.MatchString(line)
		isSource := inPython && !isPython && strings.HasPrefix(line, "    ")
		inPython = isPython || isSource
		isFunction := i+1 < len(lines) && goFile.MatchString(lines[i+1])
		if !isSource && !isFunction && !isNoise(line) {
			at = append(at, i)
		}
	}
	return at
}

// isNoise says whether a line by itself is part of a stack trace, or says nothing.
func isNoise(line string) bool {
	return line == gap || frame.MatchString(line) || goFile.MatchString(line) || trailer.MatchString(line)
}

// choose returns the indexes of the lines to show, those first that are to have room.
func choose(lines []string, kept []int) (chosen []int) {
	first := kept[:min(firstLines, len(kept))]
	rest := slices.Clone(kept[len(first):])
	slices.Reverse(rest) // what was written last is about the end
	slices.SortStableFunc(rest, func(a, b int) int { return rank(lines[a]) - rank(lines[b]) })
	rest = rest[:min(lastLines, len(rest))]
	if len(rest) > 0 && rank(lines[rest[0]]) == 0 {
		chosen, rest = append(chosen, rest[0]), rest[1:]
	}
	return append(append(chosen, first...), rest...)
}

// rank is 0 for lines that name an error, and 1 for others.
func rank(line string) int {
	if naming.MatchString(line) {
		return 0
	}
	return 1
}

// render writes as many of the chosen lines as have room, in the order in which the
// process wrote them, and marks where others are left out that are no stack frames.
func render(lines []string, kept, chosen []int) string {
	const around = len("\n" + gap + "\n")
	most := MostBytes/max(min(wholeLines, len(chosen)), 1) - around
	shown, size := map[int]string{}, 0
	for _, i := range chosen {
		line := clip(lines[i], most)
		if size += len(line) + around; size > MostBytes {
			break
		}
		shown[i] = line
	}
	var text []string
	skipped := false
	for i, line := range lines {
		if short, ok := shown[i]; ok {
			if skipped && len(text) > 0 {
				text = append(text, gap)
			}
			text, skipped = append(text, short), false
			continue
		}
		_, isKept := slices.BinarySearch(kept, i)
		skipped = skipped || isKept || line == gap
	}
	return strings.Join(text, "\n")
}

// clip leaves out the middle of a line that is too long.
func clip(line string, most int) string {
	if len(line) <= most {
		return line
	}
	half := (most - len(gap)) / 2
	return strings.ToValidUTF8(line[:half], "") + gap + strings.ToValidUTF8(line[len(line)-half:], "")
}

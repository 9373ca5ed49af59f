package main

import (
	"slices"
	"strings"
)

// lines joins the rows that one line of output was wrapped into.
func lines(rows []row) (joined [][]cell) {
	for _, row := range rows {
		if last := len(joined) - 1; row.continues && last >= 0 {
			joined[last] = slices.Concat(joined[last], row.cells)
		} else {
			joined = append(joined, slices.Clone(row.cells))
		}
	}
	return joined
}

// wrap is the reverse of lines.
func wrap(line []cell, columns int) (rows []row) {
	for continues := false; len(line) > columns; continues = true {
		rows = append(rows, row{line[:columns], continues})
		line = line[columns:]
	}
	return append(rows, row{line, len(rows) > 0})
}

// redact replaces what differs between two recordings, and says which redactions found something.
// The columns behind it stay where they are.
func redact(line []cell, redactions []redaction, found map[int]bool) []cell {
	for _, redaction := range redactions {
		text := chars(line)
		matches := redaction.pattern.FindAllStringSubmatchIndex(text, -1)
		for _, match := range slices.Backward(matches) {
			found[redaction.line] = true
			from, to := len([]rune(text[:match[0]])), len([]rune(text[:match[1]]))
			with := string(redaction.pattern.ExpandString(nil, redaction.with, text, match))
			line = replace(line, from, to, []rune(with))
		}
	}
	return line
}

func replace(line []cell, from, to int, with []rune) []cell {
	var look style
	if from < to {
		look = line[from].style
	}
	rest := line[to:]
	grown := len(with) - (to - from)
	blanks := 0
	for blanks < len(rest) && rest[blanks].char == ' ' {
		blanks++
	}
	isColumn := blanks >= 2 && blanks < len(rest)
	out := slices.Clone(line[:from])
	for _, char := range with {
		out = append(out, cell{char, look})
	}
	switch {
	case isColumn && grown > 0:
		rest = rest[min(grown, blanks-1):]
	case isColumn && grown < 0:
		out = append(out, slices.Repeat([]cell{{char: ' '}}, -grown)...)
	}
	return append(out, rest...)
}

// fold leaves out what is between the first and the last lines.
func fold(all [][]cell, head, tail int) [][]cell {
	if head+tail == 0 || len(all) <= head+tail+1 {
		return all
	}
	return slices.Concat(all[:head], [][]cell{{{'⋮', style{dim: true}}}}, all[len(all)-tail:])
}

func chars(line []cell) string {
	var text strings.Builder
	for _, cell := range line {
		text.WriteRune(cell.char)
	}
	return text.String()
}

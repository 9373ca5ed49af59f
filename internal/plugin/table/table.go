// Package table prints tables for people: as wide as their terminal, and without a character of a
// server that could harm it.
package table

import (
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/slipway-mcp/slipway/internal/text"
)

const (
	gap = 2 // between columns
	// cellBytes is more than any column needs. What fits no cell is in the object itself.
	cellBytes = 1 << 10
	noteBytes = 4 << 10
	// leastColumn is what a column keeps on a narrow screen.
	leastColumn = 8
	indent      = "  " // of notes
)

// Screen is what a table is printed on.
type Screen struct {
	IsTerminal bool // whether a character can do more than show
	Width      int  // 0 is no limit
	Colors     bool // whether colors show
}

// ScreenOf is what a writer prints on. Only a terminal has a width and colors.
func ScreenOf(w io.Writer) Screen {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return Screen{}
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		width = 0
	}
	return Screen{IsTerminal: true, Width: width, Colors: os.Getenv("NO_COLOR") == ""}
}

// Row is a line of cells, or a note below the line before.
type Row struct {
	Cells []string
	Note  string
	Bad   bool // whether the line is about something that does not work
}

// Print prints a table. On a narrow screen the widest columns are cut, and notes have several lines.
func Print(w io.Writer, screen Screen, header []string, rows []Row) error {
	widths := make([]int, len(header))
	for _, cells := range append([][]string{header}, cellsOf(rows)...) {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(clean(cell)))
		}
	}
	fit(widths, screen.Width)
	var out strings.Builder
	line(&out, widths, header)
	for _, row := range rows {
		if row.Bad && screen.Colors {
			out.WriteString("\x1b[31m")
		}
		if row.Note != "" {
			note(&out, screen.Width, row.Note)
		} else {
			line(&out, widths, row.Cells)
		}
		if row.Bad && screen.Colors {
			out.WriteString("\x1b[0m")
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// fit narrows the widest columns until all of them fit on the screen, or none can be narrower.
func fit(widths []int, screen int) {
	for screen > 0 {
		total, widest := gap*(len(widths)-1), 0
		for i, width := range widths {
			total += width
			if width >= widths[widest] {
				widest = i
			}
		}
		if total <= screen || widths[widest] <= leastColumn {
			return
		}
		widths[widest] = max(leastColumn, widths[widest]-(total-screen), secondWidest(widths, widest)-1)
	}
}

// secondWidest is the width of the widest column but one.
func secondWidest(widths []int, widest int) int {
	second := 0
	for i, width := range widths {
		if i != widest {
			second = max(second, width)
		}
	}
	return second
}

// note writes a text of one or more lines below a line of cells.
func note(out *strings.Builder, screen int, words string) {
	line := indent
	for word := range strings.FieldsSeq(text.Line(words, noteBytes)) {
		if screen > 0 && line != indent && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > screen {
			out.WriteString(line + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	out.WriteString(line + "\n")
}

func cellsOf(rows []Row) [][]string {
	var cells [][]string
	for _, row := range rows {
		cells = append(cells, row.Cells)
	}
	return cells
}

func line(out *strings.Builder, widths []int, cells []string) {
	var words strings.Builder
	for i, cell := range cells {
		cell = cut(clean(cell), widths[i])
		words.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+gap))
	}
	out.WriteString(strings.TrimRight(words.String(), " ") + "\n")
}

// clean makes a cell one line of characters that only show.
func clean(cell string) string { return text.Line(cell, cellBytes) }

// cut shortens a text to so many characters.
func cut(words string, most int) string {
	if utf8.RuneCountInString(words) <= most {
		return words
	}
	return string(slices.Concat([]rune(words)[:most-1], []rune("…")))
}

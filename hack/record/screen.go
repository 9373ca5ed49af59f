package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// style is how a character looks.
type style struct {
	color                   int // 1 to 16, as SGR 30 to 37 and 90 to 97 count them; 0 is the color of the terminal
	bold, dim, italic, line bool
}

type cell struct {
	char  rune
	style style
}

// row is a line of the screen. A line of output that is wider than the screen has several.
type row struct {
	cells     []cell
	continues bool // the row above
}

const unknown = '\ufffd' // stands for what a terminal would not show

// screen is a terminal for programs that write line after line: they may color, return to the beginning
// of the line and erase it. write fails for everything else, so that a picture never shows anything
// but what a user would see.
type screen struct {
	columns int
	rows    []row
	column  int
	style   style
	pending []byte // the beginning of a sequence whose rest comes with the next write
}

func newScreen(columns int) *screen { return &screen{columns: columns, rows: make([]row, 1)} }

// shown are the rows, without the empty one in which the cursor stands after the last newline.
func (s *screen) shown() []row {
	if last := len(s.rows) - 1; len(s.rows[last].cells) == 0 {
		return s.rows[:last]
	}
	return s.rows
}

// write shows what a program writes.
func (s *screen) write(chunk []byte) error {
	s.pending = append(s.pending, chunk...)
	for len(s.pending) > 0 {
		taken, err := s.next(s.pending)
		if err != nil {
			return err
		}
		if taken == 0 { // the rest of it comes later
			break
		}
		s.pending = s.pending[taken:]
	}
	return nil
}

// mostPending is longer than any sequence that is understood.
const mostPending = 256

// next shows one character, or does what one sequence says. It takes nothing of an incomplete one.
func (s *screen) next(text []byte) (taken int, err error) {
	if text[0] == 0x1b {
		return s.escape(text)
	}
	if !utf8.FullRune(text) {
		return 0, nil
	}
	char, size := utf8.DecodeRune(text)
	switch {
	case char == '\n':
		s.rows = append(s.rows, row{})
	case char == '\r':
		s.column = 0
	case char == '\b':
		s.column = max(0, s.column-1)
	case char == '\t':
		for more := true; more; more = s.column%8 != 0 && s.column < s.columns {
			s.put(' ')
		}
	case char == '\a': // is heard, not seen
	case !unicode.IsPrint(char): // also what changes the direction of the text
		s.put(unknown)
	default:
		s.put(char)
	}
	return size, nil
}

// put writes a character where the cursor is, and wraps the line as terminals do: before the first
// character that has no room.
func (s *screen) put(char rune) {
	if s.column >= s.columns {
		s.rows = append(s.rows, row{continues: true})
		s.column = 0
	}
	current := &s.rows[len(s.rows)-1]
	for len(current.cells) <= s.column {
		current.cells = append(current.cells, cell{char: ' '})
	}
	current.cells[s.column] = cell{char, s.style}
	s.column++
}

var (
	// control is a control sequence: its parameters and what it does.
	control = regexp.MustCompile(`^\x1b\[([0-9:;<=>?]*)[ -/]*([@-~])`)
	// title is what sets the title of the window, or the character set.
	title = regexp.MustCompile(`^\x1b(?:\][012];[^\x07\x1b]*(?:\x07|\x1b\\)|\([0AB]|[=>])`)
)

func (s *screen) escape(text []byte) (taken int, err error) {
	if match := title.Find(text); match != nil {
		return len(match), nil
	}
	match := control.FindSubmatch(text)
	if match == nil {
		if len(text) < mostPending {
			return 0, nil
		}
		return 0, fmt.Errorf("show output: no terminal sequence: %q", text[:16])
	}
	parameters, what := string(match[1]), string(match[2])
	switch {
	case what == "m" && !strings.HasPrefix(parameters, "?"):
		err = s.setStyle(parameters)
	case what == "K":
		err = s.erase(parameters)
	case (what == "h" || what == "l") && strings.HasPrefix(parameters, "?"): // whether the cursor shows, and the like
	default:
		err = unsupported(match[0])
	}
	return len(match[0]), err
}

func unsupported(sequence []byte) error {
	return fmt.Errorf("show output: sequence %q is for programs that redraw the screen, which a picture cannot show", sequence)
}

// flush fails if the output ended within a sequence.
func (s *screen) flush() error {
	if len(s.pending) > 0 {
		return fmt.Errorf("show output: it ends within a sequence: %q", s.pending)
	}
	return nil
}

func (s *screen) erase(parameters string) error {
	current := &s.rows[len(s.rows)-1]
	switch parameters {
	case "", "0":
		current.cells = current.cells[:min(s.column, len(current.cells))]
	case "1":
		for i := range min(s.column+1, len(current.cells)) {
			current.cells[i] = cell{char: ' '}
		}
	case "2":
		current.cells = nil
	default:
		return unsupported([]byte("\x1b[" + parameters + "K"))
	}
	return nil
}

// plainStyles are the SGR parameters that set or reset one thing.
var plainStyles = map[int]func(*style){
	0: func(s *style) { *s = style{} }, 1: func(s *style) { s.bold = true }, 2: func(s *style) { s.dim = true },
	3: func(s *style) { s.italic = true }, 4: func(s *style) { s.line = true }, 22: func(s *style) { s.bold, s.dim = false, false },
	23: func(s *style) { s.italic = false }, 24: func(s *style) { s.line = false }, 39: func(s *style) { s.color = 0 }, 49: func(*style) {},
}

func (s *screen) setStyle(parameters string) error {
	for parameter := range strings.SplitSeq(parameters, ";") {
		number, err := strconv.Atoi(parameter)
		if parameter == "" {
			number, err = 0, nil
		}
		set, isPlain := plainStyles[number]
		switch {
		case err != nil:
			return unsupported([]byte("\x1b[" + parameters + "m"))
		case isPlain:
			set(&s.style)
		case number >= 30 && number <= 37:
			s.style.color = number - 30 + 1
		case number >= 90 && number <= 97:
			s.style.color = number - 90 + 9
		default: // a background, or one of 256 colors: nothing that is recorded has them
			return unsupported([]byte("\x1b[" + parameters + "m"))
		}
	}
	return nil
}

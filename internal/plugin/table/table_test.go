package table

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestPrint(t *testing.T) {
	rows := []Row{
		{Cells: []string{"tickets", "True", "Closes and opens tickets of the support team."}},
		{Cells: []string{"x", "False", "short"}, Bad: true},
		{Note: "ServerExits: exit code 1, \"SEARCH_TOKEN is not set\".", Bad: true},
	}
	for name, test := range map[string]struct {
		screen Screen
		rows   []Row
		want   string
	}{
		"no terminal": {Screen{}, rows, `NAME     READY  DESCRIPTION
tickets  True   Closes and opens tickets of the support team.
x        False  short
  ServerExits: exit code 1, "SEARCH_TOKEN is not set".
`},
		"narrow": {Screen{Width: 40}, rows, `NAME     READY  DESCRIPTION
tickets  True   Closes and opens ticket…
x        False  short
  ServerExits: exit code 1,
  "SEARCH_TOKEN is not set".
`},
		"colors": {Screen{Colors: true}, rows[1:2], "NAME  READY  DESCRIPTION\n\x1b[31mx     False  short\n\x1b[0m"},
		"hostile": {Screen{}, []Row{{Cells: []string{"a\x1b[2Jb\r\n\u202ec", "\u2066", "\x9b31m\a"}}}, "NAME        READY  DESCRIPTION\n" +
			"a [2Jb  \ufffdc  \ufffd      \ufffd31m\n"},
		"nothing": {Screen{}, nil, "NAME  READY  DESCRIPTION\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := Print(&out, test.screen, []string{"NAME", "READY", "DESCRIPTION"}, test.rows); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for line := range strings.Lines(out.String()) {
				if width := utf8.RuneCountInString(strings.TrimSpace(line)); test.screen.Width > 0 && width > test.screen.Width {
					t.Errorf("%d characters wide: %q", width, line)
				}
			}
		})
	}
}

// A cell of a server that is far too large costs neither time nor memory.
func TestLargeCell(t *testing.T) {
	var out strings.Builder
	if err := Print(&out, Screen{Width: 80}, []string{"A", "B"}, []Row{{Cells: []string{strings.Repeat("x", 1<<20), "b"}}}); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 4<<10 {
		t.Errorf("%d bytes", out.Len())
	}
}

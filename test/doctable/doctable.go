// Package doctable keeps tables of the documentation equal to what the code says.
package doctable

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Check compares the lines between two comments of a page with what the code says, or writes them.
// The name is in both comments. The command is what writes the lines.
func Check(t *testing.T, page, name, want, command string, update bool) {
	t.Helper()
	begin, end := "<!-- "+name+": written by "+command+" -->\n", "<!-- end of "+name+" -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	table, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s lacks a comment, %q or %q", page, begin, end)
	}
	if update {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("%s is not what the code says; %s writes it (-want +got):\n%s", page, command, diff)
	}
}

package docs

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

func startShell(t *testing.T) *Shell {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	shell, err := StartShell(ctx, t.TempDir(), t.TempDir(), os.Environ())
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shell.Close(); err != nil {
			t.Error(err)
		}
		cancel()
	})
	return shell
}

// A later step finds what an earlier one has left, as in the reader's terminal.
func TestStepsShareASession(t *testing.T) {
	shell := startShell(t)
	for _, step := range []Step{
		{Line: 1, Script: "mkdir work && cd work\nexport WORD=hello"},
		{Line: 2, Script: "cat > file <<EOF\n$WORD from $(basename \"$PWD\")\nEOF"},
		{Line: 3, Script: "cat file >&2", Want: "hello from work"},
		{Line: 4, Script: "sleep 600", Background: true},
		{Line: 5, Script: "jobs -r | grep -c Running", Want: "1"},
	} {
		if output, err := shell.Run(t.Context(), "page.md", step); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
}

func TestFailuresNameTheLine(t *testing.T) {
	for name, test := range map[string]struct {
		steps []Step
		want  []string
	}{
		"a command that fails": {
			[]Step{{Line: 10, Script: "true\ncat <<EOF\nx\nEOF\n\nls /missing-file\ntrue"}},
			[]string{"page.md:15: this fails: ls /missing-file", "No such file"},
		},
		"in a pipe":       {[]Step{{Line: 10, Script: "false | cat"}}, []string{"page.md:10: this fails: false | cat"}},
		"an exit":         {[]Step{{Line: 10, Script: "exit 0"}}, []string{"page.md:10", "the shell has ended"}},
		"a wrong grammar": {[]Step{{Line: 10, Script: "if"}}, []string{"page.md:1", "syntax error"}},
		"another output":  {[]Step{{Line: 10, Script: "echo no", Want: "yes"}}, []string{"page.md:10: echo no: the output is not what the page shows", "yes"}},
		"a failure in the background": {
			[]Step{{Line: 10, Script: "ls /missing-file", Background: true}, {Line: 12, Script: "sleep 5"}},
			[]string{"page.md:10: this fails: ls /missing-file"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			shell := startShell(t)
			var err error
			for _, step := range test.steps {
				if _, err = shell.Run(t.Context(), "page.md", step); err != nil {
					break
				}
			}
			if err == nil {
				t.Fatal("no failure")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want one that says %q", err, want)
				}
			}
		})
	}
}

func TestStepThatDoesNotEnd(t *testing.T) {
	shell := startShell(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := shell.Run(ctx, "page.md", Step{Line: 7, Script: "echo begun; sleep 600"})
	if err == nil || !strings.Contains(err.Error(), "page.md:7") || !strings.Contains(err.Error(), "does not end") {
		t.Errorf("error %v", err)
	}
}

package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var seconds = regexp.MustCompile(`\b\d+ s\b`)

// demoSteps runs hack/step.sh as hack/demo.sh does. With terminal, its output is one.
func demoSteps(t *testing.T, terminal bool, steps string) (output string, err error) {
	t.Helper()
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	script := "set -euo pipefail\nexport TERM=xterm\n. hack/step.sh\ntrap end_steps EXIT\nexplain() { echo explained; }\n" + steps
	command := exec.CommandContext(t.Context(), "bash", "-c", script)
	if terminal {
		if _, err := exec.LookPath("script"); err != nil {
			t.Skip("no command script, which makes a terminal")
		}
		command = exec.CommandContext(t.Context(), "script", "-qec", "bash -c '"+strings.ReplaceAll(script, "'", `'\''`)+"'", "/dev/null")
	}
	command.Dir = root
	combined, err := command.CombinedOutput()
	return strings.ReplaceAll(string(combined), "\r\n", "\n"), err
}

func TestDemoStepShowsProgress(t *testing.T) {
	t.Parallel()
	const (
		title = "  build                                                     "
		shown = "until [[ -e $steps/shown ]]; do sleep 0.1; done; "
		works = "works() { printf 'noise\nprogress: 1 of 2\nprogress: 2 of 2\n'; " + shown + "}\n"
		waits = "waits() { " + shown + "}\n"
	)
	for name, test := range map[string]struct {
		terminal          bool
		steps             string
		fails             bool
		has, hasNot, ends string
	}{
		"on a terminal in one line": {
			terminal: true, steps: works + "step build works",
			has: title + "\n\x1b[?7l\x1b[K    2 of 2\x1b[?7h\x1b[A\x1b[61G\x1b[J", hasNot: "1 of 2", ends: "N s\n",
		},
		"on a terminal after a long title": {
			terminal: true, steps: works + "step '" + strings.Repeat("x", 70) + "' works",
			has: "\x1b[A\x1b[73G", hasNot: "noise", ends: "N s\n",
		},
		"elsewhere in lines": {
			steps: works + "progress_every=1; step build works",
			has:   title + "\n    2 of 2\n" + title, hasNot: "\x1b", ends: "N s\n",
		},
		"elsewhere not too often": {
			steps: "quick() { echo progress: 2 of 2; sleep 2; }\nstep build quick",
			has:   title, hasNot: "2 of 2", ends: "N s\n",
		},
		"seconds without progress": {
			steps: waits + "progress_every=1; step build waits",
			has:   title + "\n    N s\n" + title, hasNot: "progress", ends: "N s\n",
		},
		"a short step": {
			terminal: true, steps: "step build true; step next true",
			has: title, hasNot: "\x1b", ends: "N s\n",
		},
		"a note stays": {
			steps: "notes() { echo noise; echo 'note: something is different'; }\nstep build notes",
			has:   title, hasNot: "noise", ends: "N s\n    something is different\n",
		},
		"a step that fails": {
			steps: "fails() { echo noise; echo progress: 1 of 2; return 3; }\nstep build fails\nstep next true", fails: true,
			has: title + "FAILED\n\ndemo: \"build\" failed. Its output:\nnoise\n", hasNot: "1 of 2", ends: "explained\n",
		},
		"a step that fails without a word": {
			steps: "step build false", fails: true,
			has: title + "FAILED\n\ndemo: \"build\" failed. Its output:\n", hasNot: "progress", ends: "explained\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, err := demoSteps(t, test.terminal, test.steps)
			output = seconds.ReplaceAllString(output, "N s")
			if (err != nil) != test.fails {
				t.Errorf("the script ends with %v", err)
			}
			if !strings.Contains(output, test.has) || strings.Contains(output, test.hasNot) || !strings.HasSuffix(output, test.ends) {
				t.Errorf("output %q; want %q in it, not %q, and %q at its end", output, test.has, test.hasNot, test.ends)
			}
		})
	}
}

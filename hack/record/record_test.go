package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// scriptOf writes a script into a directory of its own.
func scriptOf(t *testing.T, lines string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("pictures are recorded on Linux")
	}
	path := filepath.Join(t.TempDir(), "session.term")
	if err := os.WriteFile(path, []byte("title: A title\ndesc: A description.\n"+lines+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func optionsIn(path string) options {
	return options{directory: filepath.Dir(path), timeout: time.Minute}
}

// What the commands of a script print on a real terminal is what the picture shows.
func TestRecording(t *testing.T) {
	lines, err := os.ReadFile("testdata/session.term")
	if err != nil {
		t.Fatal(err)
	}
	path := scriptOf(t, string(lines))
	var stderr bytes.Buffer
	if err := run(t.Context(), optionsIn(path), []string{path}, t.Output(), &stderr); err != nil {
		t.Fatal(err)
	}
	if stderr.Len() > 0 {
		t.Errorf("warnings:\n%s", &stderr)
	}
	picture, err := os.ReadFile(strings.TrimSuffix(path, ".term") + ".svg")
	if err != nil {
		t.Fatal(err)
	}
	shown, err := shownText(picture) // also reads it as XML
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "session.txt", strings.Join(shown, "\n")+"\n")
	if bytes.Contains(picture, []byte("<script")) {
		t.Error("the output became markup")
	}
}

// A picture of frames that do not go by the time of this machine.
func TestPicture(t *testing.T) {
	s := &script{title: "A title", desc: "A description.", columns: 30, room: 12, steps: []step{{kind: stepCommand, text: "kubectl mcp list --all-namespaces"}}}
	r := &recorder{script: s, found: map[int]bool{}}
	r.typed("# a comment", style{dim: true})
	r.typed(s.steps[0].text, style{bold: true})
	screen := newScreen(s.columns)
	var frames []frame
	for _, written := range []struct {
		pause time.Duration
		text  string
	}{
		{10 * time.Millisecond, "loading 10 %"},
		{300 * time.Millisecond, "\rloading 90 %"},
		{3 * time.Second, "\r\x1b[KNAME     READY\r\n\x1b[31mtickets  False\r\n"},
		{time.Second, "\x1b[0mdone"},
		{time.Second, "\r\x1b[K"},
	} {
		if err := screen.write([]byte(written.text)); err != nil {
			t.Fatal(err)
		}
		frames = append(frames, frame{written.pause, r.picture(screen, s.steps[0])})
	}
	r.output(frames)
	r.typed("true", style{bold: true})
	picture, err := draw(s, &r.recording)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "picture.svg", string(picture))
	shown, err := shownText(picture)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"A title", "A description. Commands: kubectl mcp list --all-namespaces.", "$ # a comment",
		"$ kubectl mcp list --all-names", "paces", "NAME     READY", "tickets  False", "$ true",
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("what is gone shows (-want +got):\n%s", diff)
	}
}

// A session that does not go as its script says gives no picture.
func TestFailures(t *testing.T) {
	for name, test := range map[string]struct{ lines, want string }{
		"a command fails":                  {"$ echo so far\n$ echo oh no; exit 4", "line 4: echo oh no; exit 4: exit code 4, want 0:\noh no"},
		"a part of a pipe fails":           {"$ false | cat", "exit code 1, want 0"},
		"a command does not fail":          {"exit: 4\n$ true", "exit code 0, want 4"},
		"a command does not exist":         {"$ no-such-command", "exit code 127"},
		"a command is killed":              {"$ kill -KILL $$", "signal: killed"},
		"a hidden command fails":           {"hide: echo why; false\n$ true", "exit status 1\nwhy"},
		"a background command ends":        {"background: echo why; exit 7\n$ sleep 1", "it ended before the recording: exit status 7\nwhy"},
		"a program redraws the screen":     {"$ printf '\\e[2J'", `sequence "\x1b[2J" is for programs that redraw the screen`},
		"a program has 256 colors":         {"$ printf '\\e[38;5;9m'", "redraw"},
		"the output ends within a color":   {"$ printf 'a\\e[3'", "ends within a sequence"},
		"the output is longer than a page": {"size: 40x5\n$ seq 10", "the session has 11 rows, and the picture has room for 5"},
		"the output is much too long":      {"size: 200x100\n$ for i in {1..90}; do for j in {1..80}; do printf '\\e[31ma\\e[0mb'; done; echo; done", "and may have 100000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := scriptOf(t, test.lines)
			err := run(t.Context(), optionsIn(path), []string{path}, t.Output(), t.Output())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.svg"))
			if err != nil || len(files) > 0 {
				t.Errorf("files %v, %v", files, err)
			}
		})
	}
}

// No command keeps a recording for longer than it may, and nothing of it stays.
func TestTimeout(t *testing.T) {
	for name, lines := range map[string]string{
		"shown": "$ sleep 300", "hidden": "hide: sleep 300\n$ true", "hidden, in a child of the shell": "hide: sleep 300; true\n$ true", "until": "until: false\n$ true", "deaf": "$ trap '' TERM HUP INT; sleep 300; true",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := scriptOf(t, lines)
			opts := optionsIn(path)
			opts.timeout = 300 * time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := run(ctx, opts, []string{path}, t.Output(), t.Output()); err == nil || ctx.Err() != nil {
				t.Errorf("error %v, and of the test %v", err, ctx.Err())
			}
		})
	}
}

// A check passes for the same output at another time, and fails for another output.
func TestCheck(t *testing.T) {
	const output = "$ cat output"
	path := scriptOf(t, "hide: test -e output || echo 'greeter-5d9c8f7b6d-x2abc is 12s old, of 5c0b1c2fa7d3' >output\n"+output)
	opts, check := optionsIn(path), optionsIn(path)
	check.check = true
	picture := strings.TrimSuffix(path, ".term") + ".svg"
	do := func(opts options) error { return run(t.Context(), opts, []string{path}, t.Output(), t.Output()) }
	becomes := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), "output"), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := do(check); err == nil || !strings.Contains(err.Error(), "no picture yet") {
		t.Errorf("without a picture: %v", err)
	}
	if err := do(opts); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	if err := do(check); err != nil {
		t.Errorf("the same output: %v", err)
	}
	becomes("greeter-77d9c8f7b6-k9xyz is   5m3s old, of 0123456789ab-dirty-01234567")
	if err := do(check); err != nil {
		t.Errorf("the same at another time: %v", err)
	}
	for _, other := range []string{"greeter-77d9c8f7b6-k9xyz is 12s old", "greeting-77d9c8f7b6-k9xyz is 12s old, of 5c0b1c2fa7d3", ""} {
		becomes(other)
		if err := do(check); err == nil || !strings.Contains(err.Error(), "print something else now") {
			t.Errorf("%q: %v", other, err)
		}
	}
	after, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("a check changed the picture")
	}
}

// A redaction that finds nothing is likely to be out of date.
func TestUnusedRedaction(t *testing.T) {
	path := scriptOf(t, "redact: never => x\n$ true")
	var stderr bytes.Buffer
	if err := run(t.Context(), optionsIn(path), []string{path}, t.Output(), &stderr); err != nil {
		t.Fatal(err)
	}
	if got, want := stderr.String(), "record: warning: line 3: nothing matches never\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestScriptErrors(t *testing.T) {
	for name, test := range map[string]struct{ lines, want string }{
		"no command":             {"say: hello", "there is no command to show"},
		"neither":                {"kubectl get pods", ":3: \"kubectl get pods\" is neither a command"},
		"unknown":                {"run: x", "unknown key \"run\""},
		"size":                   {"size: 80", "read two numbers of \"80\""},
		"large":                  {"size: 80x1000", "size is from 20x1 to 200x100"},
		"redaction":              {"redact: x", "redact: PATTERN => TEXT"},
		"pattern":                {"redact: ( => x", "read redaction"},
		"exit of nothing":        {"$ true\nexit: 1", "no command follows"},
		"exit that is no number": {"exit: one\n$ false", "invalid syntax"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := readScript(scriptOf(t, test.lines)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	path := filepath.Join(t.TempDir(), "x.term")
	if err := os.WriteFile(path, []byte("title: x\n$ true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readScript(path); err == nil || !strings.Contains(err.Error(), "title and a desc") {
		t.Errorf("without a desc: %v", err)
	}
}

// Sequences and characters may come in parts.
func TestScreenInParts(t *testing.T) {
	const output = "\x1b[1;31mrøt\x1b[0m\r\n\x1b]0;title\x1b\\ab\bc\td\x1b[?25l\x1b(B"
	whole, parts := newScreen(20), newScreen(20)
	if err := whole.write([]byte(output)); err != nil {
		t.Fatal(err)
	}
	for i := range len(output) {
		if err := parts.write([]byte(output[i : i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(text(whole.shown()), text(parts.shown())); diff != "" {
		t.Errorf("(-whole +parts):\n%s", diff)
	}
	if got, want := text(parts.shown()), "røt\nac      d"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if look := parts.rows[0].cells[0].style; look != (style{color: 2, bold: true}) {
		t.Errorf("style %+v", look)
	}
	if err := parts.flush(); err != nil {
		t.Error(err)
	}
}

// Erasing leaves what it should.
func TestErase(t *testing.T) {
	for sequence, want := range map[string]string{"\x1b[K": "ab", "\x1b[1K": "   def", "\x1b[2K": ""} {
		screen := newScreen(20)
		if err := screen.write([]byte("abcdef\rab" + sequence)); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimRight(chars(screen.rows[0].cells), " "); got != want {
			t.Errorf("%q: got %q, want %q", sequence, got, want)
		}
	}
}

// Columns stay where they are when a redaction changes the length of a cell.
func TestRedact(t *testing.T) {
	for name, test := range map[string]struct{ pattern, with, line, want string }{
		"shorter":      {`\d+ms`, "1s", "took 1234ms  and  more", "took 1s      and  more"},
		"longer":       {`x\d`, "xxxxx", "x1      b", "xxxxx   b"},
		"much longer":  {`x\d`, "xxxxx", "x1  b", "xxxxx b"},
		"in a text":    {`\d+ms`, "1s", "took 1234ms and more", "took 1s and more"},
		"at the end":   {`\d+s$`, "5s", "a  123s", "a  5s"},
		"a group":      {`demo:(\w)\w+`, "demo:$1", "demo:abc", "demo:a"},
		"several":      {`\d`, "", "a1b2c3", "abc"},
		"wide letters": {`é`, "e", "é  è  x", "e  è  x"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{}
			if err := (&parser{script: s}).redact(1, test.pattern+" => "+test.with); err != nil {
				t.Fatal(err)
			}
			var line []cell
			for _, char := range test.line {
				line = append(line, cell{char: char})
			}
			if got := chars(redact(line, s.redactions, map[int]bool{})); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Every script of the documentation can be read, and its picture, once it is recorded, is of the script as it is now.
// make pictures-check compares the output, which takes a cluster.
func TestPicturesOfTheDocumentation(t *testing.T) {
	scripts, err := filepath.Glob("../../docs/pictures/*" + scriptExtension)
	if err != nil {
		t.Fatal(err)
	}
	if len(scripts) < 3 {
		t.Errorf("found %d scripts: they are elsewhere", len(scripts))
	}
	for _, path := range scripts {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s, err := readScript(path)
			if err != nil {
				t.Fatal(err)
			}
			picture, err := os.ReadFile(strings.TrimSuffix(path, scriptExtension) + ".svg")
			if err != nil {
				t.Fatalf("%v: record it with make pictures", err)
			}
			if len(picture) > mostBytes {
				t.Errorf("%d bytes, and the most is %d", len(picture), mostBytes)
			}
			shown, err := shownText(picture)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{s.title, description(s)}, shown[:2]); diff != "" {
				t.Errorf("the picture is of another script: run make pictures (-script +picture)\n%s", diff)
			}
		})
	}
}

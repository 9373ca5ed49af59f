package rpc

import (
	"bytes"
	"testing"
	"unicode/utf8"
)

// A byte that is special ends a long text wherever it stands, and no other does.
func TestStringsOfAllSizes(t *testing.T) {
	const most = 3*windowBytes + 40
	for size := range most {
		text := bytes.Repeat([]byte("~ !#[]az"), most/8+1)[:size]
		for _, end := range []string{`"`, `\n"`, "\u00e9\"", "\U0001f600x\"", "\x7f\"", "\x1f\"", "\x00\"", "\xff\"", "\xc3", ``} {
			s := syntax{b: []byte(`"` + string(text) + end)}
			_, err := s.string()
			if valid := end != "" && end[0] >= ' ' && utf8.ValidString(end); valid != (err == nil) || valid && s.i != len(s.b) {
				t.Fatalf("%d bytes and %q: read %d of %d bytes, %v", size, end, s.i, len(s.b), err)
			}
			if err != nil && err.Offset != 1+size {
				t.Fatalf("%d bytes and %q: %v, at %d", size, end, err, err.Offset)
			}
		}
	}
}

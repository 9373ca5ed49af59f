package rpc

import (
	"bytes"
	"strings"
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

// A result may be nested as deeply as any other value, its own braces counted.
func TestDepthOfResults(t *testing.T) {
	for depth, want := range map[int]bool{maxDepth: true, maxDepth + 1: false} {
		nested := strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1)
		for _, result := range []string{`{"a":` + nested + `}`, `{"a":1,"b":` + nested + `,"c":2}`, "[" + nested + "]"} {
			if _, err := Scan([]byte(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`)); (err == nil) != want {
				t.Errorf("depth %d: %v", depth, err)
			}
		}
		after := `{"jsonrpc":"2.0","id":1,"result":{},"error":null,"a":[` + nested + `]}`
		if _, err := ScanLenient([]byte(after)); (err == nil) != want {
			t.Errorf("depth %d, after a result: %v", depth, err)
		}
	}
}

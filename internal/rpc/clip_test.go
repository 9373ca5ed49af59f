package rpc

import (
	"strings"
	"testing"
)

func TestClip(t *testing.T) {
	for name, test := range map[string]struct{ text, clipped, legible string }{
		"short":                  {"tools", "tools", "tools"},
		"as long as it may be":   {"12345678", "12345678", "12345678"},
		"longer":                 {"123456789", "12345678…", "12345678…"},
		"a character is cut":     {"1234567é9", "1234567…", "1234567…"},
		"a character is not cut": {"123456é9", "123456é…", "123456é…"},
		"line breaks":            {"a\nb\r\tc", "a\nb\r\tc", "a b  c"},
		"what does something":    {"\x1b[2J\u202ea", "\x1b[2J\u202ea", "\ufffd[2J\ufffda"},
		"invalid UTF-8":          {"a\xff", "a\xff", "a\ufffd"},
		"nothing":                {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ClipTo(test.text, 8); got != test.clipped {
				t.Errorf("clipped: got %q, want %q", got, test.clipped)
			}
			if got := ClipTo([]byte(test.text), 8); got != test.clipped {
				t.Errorf("clipped bytes: got %q, want %q", got, test.clipped)
			}
			if got := Legible(test.text, 8); got != test.legible {
				t.Errorf("legible: got %q, want %q", got, test.legible)
			}
		})
	}
	if got, want := Clip(strings.Repeat("x", 65)), strings.Repeat("x", 64)+"…"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

package adapterapi

import (
	"strings"
	"testing"
)

func TestProcesses(t *testing.T) {
	for text, ok := range map[string]bool{
		"10/9/7/1/out of memory":               true,
		"0/0/0/0/":                             true,
		"1/1/0/0/signal 11 / core":             true,
		"1099511627775/1099511627775/0/0/x":    true,
		"1/1/0/0/" + strings.Repeat("x", 100):  true,
		"1/1/0/0/" + strings.Repeat("x", 101):  false,
		"":                                     false,
		"1/1/0/0":                              false,
		"1/1/0/-1/x":                           false,
		"a/1/0/0/x":                            false,
		"1099511627776/1/0/0/x":                false,
		"1/1/0/0/two\nlines":                   false,
		"1/1/0/0/\x1b[31m":                     false,
		"1/1/0/0/\u202eturned":                 false,
		"1/2/0/0/more crashed than ended":      false,
		"2/1/0/2/more failed than ended":       false,
		"2/1/2/0/more out of memory than died": false,
	} {
		got, err := ParseProcesses(text)
		if (err == nil) != ok || ok && got.String() != text {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
		if !ok && got != (Processes{}) {
			t.Errorf("%q: part of it is taken: %+v", text, got)
		}
	}
}

package adapterapi

import (
	"strings"
	"testing"
)

func TestSessions(t *testing.T) {
	for text, ok := range map[string]bool{
		"20/20/3": true, "0/0/0": true, "1099511627775/1/1099511627775": true, "1/2/3/4": true, "1/2/3/1099511627775": true,
		"": false, "3": false, "1/2": false, "1/2/3/4/5": false, "-1/2/3": false, "1099511627776/1/0": false, "a/1/0": false, "1/ 2/3": false,
		"1/2/3/": false, "1/2/3/-1": false,
	} {
		got, err := ParseSessions(text)
		made := got.String()
		if strings.Count(text, "/") > 2 {
			made = got.WithSpares()
		}
		if (err == nil) != ok || ok && made != text {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}

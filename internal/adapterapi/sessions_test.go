package adapterapi

import "testing"

func TestSessions(t *testing.T) {
	for text, ok := range map[string]bool{
		"20/20/3": true, "0/0/0": true, "1099511627775/1/1099511627775": true,
		"": false, "3": false, "1/2": false, "1/2/3/4": false, "-1/2/3": false, "1099511627776/1/0": false, "a/1/0": false, "1/ 2/3": false,
	} {
		got, err := ParseSessions(text)
		if (err == nil) != ok || ok && got.String() != text {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}

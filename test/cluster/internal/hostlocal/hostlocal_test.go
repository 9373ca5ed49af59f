package hostlocal

import "testing"

func TestBefore(t *testing.T) {
	for address, want := range map[string]string{
		"10.244.1.7": "10.244.1.6",
		"10.244.1.0": "10.244.0.255",
		"0.0.0.0":    "",
		"10.244.1":   "",
		"pod":        "",
		"":           "",
	} {
		if got, err := Before(address); got != want || (err != nil) != (want == "") {
			t.Errorf("before %q: %q, %v", address, got, err)
		}
	}
}

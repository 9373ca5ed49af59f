package probekey

import (
	"net/http"
	"strings"
	"testing"
)

const key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

// The token is part of what managers and adapters of different versions agree on.
func TestToken(t *testing.T) {
	const want = "8ELIWfxcDEitWPHlB-vZpiOWyJlKAh2kfWxjSmkHb9g"
	got := Token([]byte(key))
	if got != want {
		t.Errorf("token %q, want %q", got, want)
	}
	if again := Token([]byte(" " + key + "\n")); again != got {
		t.Errorf("with blanks around the key: %q", again)
	}
	if strings.Contains(got, key) || Token([]byte(key[1:])) == got {
		t.Error("the token does not hide the key, or does not depend on it")
	}
}

func TestIsProbe(t *testing.T) {
	token := Token([]byte(key))
	for name, test := range map[string]struct {
		key       string
		presented []string
		want      bool
	}{
		"the token":       {key, []string{token}, true},
		"none":            {key, nil, false},
		"an empty one":    {key, []string{""}, false},
		"the key itself":  {key, []string{key}, false},
		"part of it":      {key, []string{token[:len(token)-1]}, false},
		"twice":           {key, []string{token, token}, false},
		"another key's":   {key[2:] + "20", []string{token}, false},
		"no key":          {"", []string{Token(nil)}, false},
		"a key of blanks": {" \n", []string{Token(nil)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &http.Request{Header: http.Header{Header: test.presented}}
			if got := NewVerifier([]byte(test.key)).IsProbe(r); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
	if http.CanonicalHeaderKey(Header) != Header {
		t.Error("the header is not in canonical form")
	}
}

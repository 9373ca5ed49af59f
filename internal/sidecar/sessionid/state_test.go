package sessionid

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

func newStates(t testing.TB, keys ...byte) *States {
	t.Helper()
	secrets := make([][]byte, len(keys))
	for i, b := range keys {
		secrets[i] = bytes.Repeat([]byte{b}, KeySize)
	}
	states, err := NewStates(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return states
}

func TestSealAndOpen(t *testing.T) {
	before, during, after := newStates(t, 1), newStates(t, 2, 1), newStates(t, 2)
	seal := before.Seal(owner, &Digest{7})
	if len(seal) != StateLength || seal == before.Seal(owner, &Digest{7}) {
		t.Errorf("%d bytes, want %d, and no two alike", len(seal), StateLength)
	}
	for name, test := range map[string]struct {
		by   *States
		seal string
		of   Digest
		want error
	}{
		"the same key":            {before, seal, Digest{7}, nil},
		"the next key is current": {during, seal, Digest{7}, nil},
		"the key is withdrawn":    {after, seal, Digest{7}, ErrInvalid},
		"another state":           {before, seal, Digest{8}, ErrOther},
		"the id of a session":     {before, newCodec(t, 1).Mint(owner), Digest{7}, ErrInvalid},
		"a session with its size": {before, before.seal(versionSession, make([]byte, ownerSize), make([]byte, 32)), Digest{}, ErrInvalid},
		"more is sealed":          {before, before.seal(versionState, make([]byte, ownerSize+1), make([]byte, 32)), Digest{}, ErrInvalid},
		"longer":                  {before, seal + "A", Digest{7}, ErrInvalid},
		"nothing":                 {before, "", Digest{7}, ErrInvalid},
		"much":                    {before, strings.Repeat("A", 1<<20), Digest{7}, ErrInvalid},
		"no base64":               {before, strings.Repeat("+", StateLength), Digest{7}, ErrInvalid},
		"bits that mean nothing":  {before, seal[:len(seal)-1] + string(nextInAlphabet(seal[len(seal)-1])), Digest{7}, ErrInvalid},
	} {
		got, err := test.by.Open(test.seal, &test.of)
		if !errors.Is(err, test.want) || err == nil && got != owner {
			t.Errorf("%s: %v, %v, want %v", name, got, err, test.want)
		}
	}
	if _, err := newCodec(t, 1).Parse(seal); !errors.Is(err, ErrInvalid) {
		t.Errorf("as the id of a session: %v", err)
	}
	if _, err := NewStates(make([]byte, 1)); err == nil {
		t.Error("a short key is a key")
	}
}

// nextInAlphabet is the character of base64url after one that stands for an even number.
func nextInAlphabet(c byte) byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, c)+1]
}

func TestAlteredSealsAreRefused(t *testing.T) {
	states := newStates(t, 1)
	raw, err := base64.RawURLEncoding.DecodeString(states.Seal(owner, &Digest{7}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(raw) * 8 {
		altered := bytes.Clone(raw)
		altered[i/8] ^= 1 << (i % 8)
		if _, err := states.Open(base64.RawURLEncoding.EncodeToString(altered), &Digest{7}); err == nil {
			t.Errorf("bit %d does not matter", i)
		}
	}
}

// Clients hold states across an upgrade of the adapter, so that the format must not change.
func TestFormatOfSealsIsStable(t *testing.T) {
	const seal = "Aq_A-h2fO4CWeam8GF-sLWH2ldShDglrbUBUENvF0pfIZQuxheYuX1lDmIMlI0QfDVsot-Uaku6vlBLzZEJAExL7Ww"
	if got, err := newStates(t, 1).Open(seal, &Digest{7}); err != nil || got != owner {
		t.Errorf("got %v, %v, want %v", got, err, owner)
	}
}

func FuzzOpen(f *testing.F) {
	states := newStates(f, 1)
	for _, seed := range []string{"", states.Seal(owner, &Digest{}), newCodec(f, 1).Mint(owner), strings.Repeat("A", StateLength)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seal string) {
		got, err := states.Open(seal, &Digest{})
		if err == nil && got != owner || err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrOther) {
			t.Fatalf("Open(%q): %v, %v", seal, got, err)
		}
	})
}

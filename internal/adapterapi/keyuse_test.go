package adapterapi

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestKeyUse(t *testing.T) {
	const a, b = "00112233445566aa", "00112233445566bb"
	for text, ok := range map[string]bool{
		a:                                    true,
		a + "," + b + "=0":                   true,
		a + "," + b + "=12," + a + "=0":      true,
		a + strings.Repeat(","+b+"=1", 16):   true,
		a + strings.Repeat(","+b+"=1", 17):   false,
		"":                                   false,
		a + ",":                              false,
		a + "," + b:                          false,
		a + "," + b + "=":                    false,
		a + "," + b + "=-1":                  false,
		a + "," + b + "=1=1":                 false,
		a + "," + b + "=1099511627776":       false,
		a[2:]:                                false,
		a + "00":                             false,
		"zz" + a[2:]:                         false,
		a + ",zz" + b[2:] + "=1":             false,
		strings.Repeat(a, 1000) + "," + b:    false,
		a + "," + strings.Repeat(b, 2) + "=": false,
	} {
		got, err := ParseKeyUse(text)
		if (err == nil) != ok || ok && got.String() != text {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
		if diff := cmp.Diff(KeyUse{}, got); !ok && diff != "" {
			t.Errorf("%q: part of it is taken: %s", text, diff)
		}
	}
	use := KeyUse{Current: a, Others: []OtherKey{{b, 0}}}
	if !use.Accepts(a) || !use.Accepts(b) || use.Accepts("c") || !use.Uses(a) || use.Uses(b) || use.Uses("c") {
		t.Errorf("%s accepts or uses other keys than it says", use)
	}
	if use.Others[0].Sessions = 1; !use.Uses(b) {
		t.Error("a key with a session is not used")
	}
}

// Without a key, no sender can change what an answer says of keys, and an answer without it is that of an adapter that does not know
// the header.
func TestKeyUseIsSigned(t *testing.T) {
	proof, _ := NewProof(key(t, hexKey), CatalogSubject("pod"), time.Unix(1700000000, 0))
	answers := []Answer{{}, {Processes: "p"}, {Keys: "p"}, {Processes: "p", Keys: "p"}, {Processes: "p", Keys: "q"}, {Processes: "pp"}}
	for i, signed := range answers {
		for j, presented := range answers {
			if got := proof.Opens(proof.Seal(signed), presented); got != (i == j) {
				t.Errorf("the seal of %+v opens %+v: %t", signed, presented, got)
			}
		}
	}
}

func TestKeyringInTheSecret(t *testing.T) {
	one, two, three := NewKey(), NewKey(), NewKey()
	ring := Keyring{Current: one, Accepted: []Key{two, three}}
	got, err := ParseKeyring(ring.Encode())
	if err != nil || !got.Equal(ring) {
		t.Errorf("got %v, %v, want %v", got, err, ring)
	}
	if got := ring.WithCurrent(three); !got.Equal(Keyring{Current: three, Accepted: []Key{one, two}}) {
		t.Errorf("with another current key: %v", got)
	}
	if !ring.Equal(Keyring{Current: one, Accepted: []Key{two, three}}) {
		t.Errorf("the ring itself has changed: %v", ring)
	}
}

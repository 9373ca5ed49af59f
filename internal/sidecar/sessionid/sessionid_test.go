package sessionid

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func newCodec(t testing.TB, keys ...byte) *Codec {
	t.Helper()
	secrets := make([][]byte, len(keys))
	for i, b := range keys {
		secrets[i] = bytes.Repeat([]byte{b}, KeySize)
	}
	codec, err := New(secrets...)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return codec
}

var owner = Owner{UID: [16]byte{1, 2, 3}, Address: netip.MustParseAddrPort("10.244.3.17:16270")}

func TestMintAndParse(t *testing.T) {
	codec := newCodec(t, 1)
	for name, want := range map[string]Owner{
		"IPv4": owner,
		"IPv6": {UID: [16]byte{9}, Address: netip.MustParseAddrPort("[fd00::17]:16270")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := codec.Parse(codec.Mint(want))
			if err != nil {
				t.Fatalf("Parse: %v", err)
			}
			if got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// T-14: visible ASCII; X-01: no two alike; and nothing of the owner shows.
func TestIDsAreUniqueAndOpaque(t *testing.T) {
	codec := newCodec(t, 1)
	seen := map[string]bool{}
	for range 1000 {
		id := codec.Mint(owner)
		if seen[id] {
			t.Fatalf("minted %q twice", id)
		}
		seen[id] = true
		if len(id) != Length || strings.ContainsFunc(id, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
			t.Fatalf("id %q is not %d visible characters", id, Length)
		}
		raw, err := base64.RawURLEncoding.DecodeString(id)
		if err != nil {
			t.Fatalf("decode id: %v", err)
		}
		address := owner.Address.Addr().As4()
		if bytes.Contains(raw, owner.UID[:]) || bytes.Contains(raw, address[:]) {
			t.Fatalf("id %q shows its owner", id)
		}
	}
}

func TestKeyRotation(t *testing.T) {
	before, during, after := newCodec(t, 1), newCodec(t, 2, 1), newCodec(t, 2)
	id := before.Mint(owner)
	if _, err := during.Parse(id); err != nil {
		t.Errorf("with both keys: %v", err)
	}
	if _, err := after.Parse(id); !errors.Is(err, ErrInvalid) {
		t.Errorf("without the old key: got %v, want ErrInvalid", err)
	}
	if _, err := after.Parse(during.Mint(owner)); err != nil {
		t.Errorf("new ids are not made with the first key: %v", err)
	}
}

// Every single altered bit is noticed.
func TestAlteredIDsAreRefused(t *testing.T) {
	codec := newCodec(t, 1)
	raw, err := base64.RawURLEncoding.DecodeString(codec.Mint(owner))
	if err != nil {
		t.Fatalf("decode id: %v", err)
	}
	for i := range len(raw) * 8 {
		altered := bytes.Clone(raw)
		altered[i/8] ^= 1 << (i % 8)
		if _, err := codec.Parse(base64.RawURLEncoding.EncodeToString(altered)); !errors.Is(err, ErrInvalid) {
			t.Errorf("bit %d: got %v, want ErrInvalid", i, err)
		}
	}
}

func TestKeysOfOtherSizesAreRefused(t *testing.T) {
	for name, keys := range map[string][][]byte{
		"none":  nil,
		"short": {make([]byte, KeySize-1)},
		"long":  {make([]byte, KeySize), make([]byte, KeySize+1)},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(keys...); err == nil {
				t.Error("New: got no error")
			}
		})
	}
}

// R19: whatever a client sends, the answer is an owner or ErrInvalid.
func FuzzParse(f *testing.F) {
	codec := newCodec(f, 1)
	for _, seed := range []string{"", "__proto__", codec.Mint(owner), strings.Repeat("A", Length), strings.Repeat("-", 1<<16)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		got, err := codec.Parse(id)
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Fatalf("Parse(%q): %v", id, err)
		}
		if err == nil && got != owner {
			t.Fatalf("Parse(%q) made up an owner: %v", id, got)
		}
	})
}

// Clients hold ids across an upgrade of the adapter, so that the format must not change.
func TestFormatIsStable(t *testing.T) {
	const id = "Aa_A-h26kt_j4Ey44jP7rqc7sFj1kxPrlF-FRs8q1BTjm1ICFoXnm5Ob5QlIf-a-98NFg32EsmjSpyUCZuH8qi3hv3V5ZV_zVoTZuSUk5oeHGFQ"
	if got, err := newCodec(t, 1).Parse(id); err != nil || got != owner {
		t.Errorf("got %v, %v, want %v", got, err, owner)
	}
}

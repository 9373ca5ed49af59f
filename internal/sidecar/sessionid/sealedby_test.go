package sessionid

import "testing"

func TestSealedBy(t *testing.T) {
	codec := newCodec(t, 1, 2, 3)
	for i := range 3 {
		if got := codec.SealedBy(newCodec(t, byte(i+1)).Mint(owner)); got != i {
			t.Errorf("got key %d, want %d", got, i)
		}
	}
	for name, id := range map[string]string{
		"nothing":            "",
		"too short":          "AQAAAA",
		"not base64url":      "????????",
		"another server's":   newCodec(t, 4).Mint(owner),
		"of no key at all":   "AAAAAAAAAAAAAAAAAAAAAAA",
		"not in 8 bit bytes": "éééééééé",
	} {
		if got := codec.SealedBy(id); got != Unknown {
			t.Errorf("%s: got key %d", name, got)
		}
	}
}

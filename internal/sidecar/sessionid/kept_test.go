package sessionid

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var kept = Kept{
	Owner: owner, Process: [16]byte{5}, Principal: [16]byte{6}, Began: time.UnixMilli(1_800_000_000_123), Revision: "2025-11-25", ServerID: "theirs",
}

func mintKept(t testing.TB, codec *Codec, k Kept) string {
	t.Helper()
	id, ok := codec.MintKept(&k)
	if !ok {
		t.Fatalf("there is no id for %+v", k)
	}
	return id
}

func TestMintAndParseKept(t *testing.T) {
	codec := newCodec(t, 1)
	long := kept
	long.Revision, long.ServerID = strings.Repeat("r", mostRevision), strings.Repeat("x", mostServerID)
	for name, want := range map[string]Kept{"usual": kept, "long": long, "no revision": {Owner: owner, Began: kept.Began, ServerID: "s"}} {
		id := mintKept(t, codec, want)
		got, err := codec.ParseKept(id)
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(Owner{})); err != nil || diff != "" || len(id) > 512 {
			t.Errorf("%s, %d characters: %v (-want +got):\n%s", name, len(id), err, diff)
		}
		if got, err := codec.Parse(id); err != nil || got != want.Owner {
			t.Errorf("%s: the owner is %v, %v", name, got, err)
		}
	}
	tooLong, none := kept, kept
	tooLong.ServerID += strings.Repeat("x", mostServerID)
	none.ServerID = ""
	for _, k := range []Kept{tooLong, none, {ServerID: "s", Revision: strings.Repeat("r", mostRevision+1)}} {
		if id, ok := codec.MintKept(&k); ok {
			t.Errorf("%s is the id of %+v", id, k)
		}
	}
}

// Whatever is sealed, a text that lies about its length makes no session of others' bytes.
func FuzzParseKept(f *testing.F) {
	codec := newCodec(f, 1)
	usual := mintKept(f, codec, kept)
	plain, err := codec.open(versionKept, usual, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain, usual)
	f.Add(plain[:keptSize-1], codec.Mint(owner))
	f.Add(append(plain[:ownerSize+40:ownerSize+40], 255, 0, 0), "")
	f.Fuzz(func(t *testing.T, plain []byte, id string) {
		// The process that chose this input has minted an id of its own for the same session.
		if got, err := codec.ParseKept(id); err == nil && (got.Owner != kept.Owner || got.ServerID != kept.ServerID) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseKept(%q): %+v, %v", id, got, err)
		}
		if len(plain) > largest-overhead {
			return
		}
		k, err := codec.ParseKept(codec.seal(versionKept, plain, nil))
		if err == nil && keptSize+len(k.Revision)+len(k.ServerID) != len(plain) {
			t.Errorf("%x: %+v", plain, k)
		}
	})
}

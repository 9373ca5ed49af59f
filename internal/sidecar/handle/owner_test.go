package handle

import (
	"errors"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

func ownerOf(t *testing.T, b *Binder, by *caller.Caller, params string) (sessionid.Owner, bool) {
	t.Helper()
	message := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{` + params + `}}`)
	e, err := rpc.Scan(message)
	if err != nil {
		t.Fatal(err)
	}
	before := string(message)
	defer func() {
		if string(message) != before {
			t.Errorf("the message becomes %s", message)
		}
	}()
	return OwnerOf(b.Keys.States(), by, message, &e)
}

// Another pod reads from a state which pod gave it, and to whom. A caller that the adapter has not verified can go on with its
// states, too.
func TestStatesNameTheirOwner(t *testing.T) {
	t.Parallel()
	key := adapterapi.NewKey()
	b, elsewhere := newBinder(key), newBinder(key)
	elsewhere.Owner.UID[0]++
	for name, by := range map[string]*caller.Caller{
		"verified": verified("corp:alice"), "with a token": {Principal: "corp:alice"}, "no token": {},
	} {
		state := sealedFor(t, b, by, `"a\u00e9b"`)
		params := `"requestState":` + state
		if owner, ok := ownerOf(t, elsewhere, by, params); !ok || owner != thisPod {
			t.Errorf("%s: the owner is %v, %t", name, owner, ok)
		}
		if got, err := claimedBy(t, elsewhere, by, "tools/call", params); err != nil || !strings.HasSuffix(got, strings.Repeat(" ", sealSize)+`"a\u00e9b"}}`) {
			t.Errorf("%s: the server gets %s, %v", name, got, err)
		}
		for other, to := range map[string]*caller.Caller{
			"a verified one": verified("corp:bob"), "one with a token": {Principal: "corp:bob"}, "one whose token is not verified": {Principal: "corp:alice", Address: "x"},
		} {
			if to.Principal == by.Principal && to.Identity() == by.Identity() {
				continue
			}
			if _, ok := ownerOf(t, elsewhere, to, params); ok {
				t.Errorf("%s: the state is known for %s", name, other)
			}
			if _, err := claimedBy(t, b, to, "tools/call", params); !errors.Is(err, ErrState) {
				t.Errorf("%s: %s goes on with it: %v", name, other, err)
			}
		}
		altered := strings.Replace(params, `b"`, `c"`, 1)
		if _, err := claimedBy(t, b, by, "tools/call", altered); !errors.Is(err, ErrState) {
			t.Errorf("%s: an altered state: %v", name, err)
		}
		if _, ok := ownerOf(t, b, by, altered); ok {
			t.Errorf("%s: an altered state has an owner", name)
		}
	}
}

// Without verified callers, what no pod has sealed is the server's, and its answers pass as they are but for the seal.
func TestStatesOfTheServerItself(t *testing.T) {
	t.Parallel()
	b, anonymous := newBinder(adapterapi.NewKey()), &caller.Caller{}
	for name, state := range map[string]string{
		"short": `"abc"`, "empty": `""`, "a number": `7`, "null": `null`, "as long as a seal": `"` + strings.Repeat("A", sealSize-1) + `.abc"`,
		"of another server": sealedFor(t, newBinder(adapterapi.NewKey()), anonymous, `"abc"`),
	} {
		params := `"requestState":` + state
		got, err := claimedBy(t, b, anonymous, "tools/call", params)
		if err != nil || !strings.HasSuffix(got, params+`}}`) {
			t.Errorf("%s: the server gets %s, %v", name, got, err)
		}
		if _, ok := ownerOf(t, b, anonymous, params); ok {
			t.Errorf("%s: there is an owner", name)
		}
	}
	for name, result := range map[string]string{
		"twice": `{"requestState":"a","requestState":"b"}`, "other case": `{"requestState":"a","RequestState":"b"}`,
		"tasks": `{"tasks":[{"taskId":"a"}],"taskId":"b"}`, "much too long": `{"requestState":"` + strings.Repeat("x", escapedBytes-sealSize-3) + `\n"}`,
	} {
		if got := boundTo(t, b, anonymous, result); got != `{"jsonrpc":"2.0","id":7,"result":`+result+`}` {
			t.Errorf("%s: %.300s", name, got)
		}
	}
	if b.Peers = false; b.Binds(anonymous) || !b.Binds(verified("corp:alice")) || (*Binder)(nil).Binds(verified("corp:alice")) {
		t.Error("the wrong callers are bound")
	}
}

// The ticket of a parked call is at most 256 bytes.
func TestLengthOfTickets(t *testing.T) {
	t.Parallel()
	ticket := `"` + strings.Repeat("A", 26) + `"` // as rand.Text makes them
	if state := sealedFor(t, newBinder(adapterapi.NewKey()), &caller.Caller{}, ticket); len(state)-len(`""`) > 256 {
		t.Errorf("%d bytes: %s", len(state), state)
	}
}

// Whatever a client sends, there is an owner only if a pod has sealed the state, and the message stays as it is.
func FuzzOwnerOf(f *testing.F) {
	b, by := newBinder(adapterapi.Key{}), verified("corp:alice")
	whole := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"requestState":"` + b.Keys.States().Seal(thisPod, &sessionid.Digest{}) + `.abc"}}`
	for _, seed := range []string{whole, strings.Replace(whole, ".abc", "", 1), strings.Replace(whole, ".abc", `.\u0061`, 1), strings.Replace(whole, `"requestState":"`, `"requestState":"\u0041`, 1)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		e, err := rpc.Scan(message)
		if err != nil {
			return
		}
		before := string(message)
		if owner, ok := OwnerOf(b.Keys.States(), by, message, &e); ok {
			t.Errorf("%q has the owner %v", message, owner)
		}
		if string(message) != before {
			t.Errorf("%q becomes %q", before, message)
		}
		if err := b.Claim(by, message, &e); err == nil && string(message) != before {
			t.Errorf("%q is unsealed: %q", before, message)
		}
	})
}

package handle

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

var thisPod = sessionid.Owner{UID: [16]byte{1, 2}, Address: netip.MustParseAddrPort("10.0.0.1:16272")}

func newBinder(current adapterapi.Key, accepted ...adapterapi.Key) *Binder {
	held, err := keys.New(adapterapi.Keyring{Current: current, Accepted: accepted}, "")
	if err != nil {
		panic(err)
	}
	return New(Options{Keys: held, Owner: thisPod, Peers: true})
}

// verified is a caller whom the adapter has verified.
func verified(principal caller.Principal) *caller.Caller {
	return &caller.Caller{Principal: principal, Grant: &access.Grant{Identity: &identity.Identity{User: string(principal)}}}
}

// bound is an answer with this result as a verified principal gets it.
func bound(t *testing.T, b *Binder, to caller.Principal, result string) string {
	t.Helper()
	return boundTo(t, b, verified(to), result)
}

func boundTo(t *testing.T, b *Binder, to *caller.Caller, result string) string {
	t.Helper()
	answer := []byte(`{"jsonrpc":"2.0","id":7,"result":` + result + `}`)
	e, err := rpc.ScanLenient(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(b.Bind(to, answer, &e))
}

// claimed is a message of a verified principal with these params as the server gets it.
func claimed(t *testing.T, b *Binder, by caller.Principal, method, params string) (string, error) {
	t.Helper()
	return claimedBy(t, b, verified(by), method, params)
}

func claimedBy(t *testing.T, b *Binder, by *caller.Caller, method, params string) (string, error) {
	t.Helper()
	message := []byte(fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s}}`, method, params))
	e, err := rpc.Scan(message)
	if err != nil {
		t.Fatal(err)
	}
	id := string(e.ID.Of(message))
	err = b.Claim(by, message, &e)
	if string(e.ID.Of(message)) != id {
		t.Error("the message has moved")
	}
	return string(message), err
}

// sealed is a state, in quotes, as a verified principal gets it.
func sealed(t *testing.T, b *Binder, to caller.Principal, state string) string {
	t.Helper()
	return sealedFor(t, b, verified(to), state)
}

func sealedFor(t *testing.T, b *Binder, to *caller.Caller, state string) string {
	t.Helper()
	got := boundTo(t, b, to, `{"requestState":`+state+`}`)
	got = strings.TrimPrefix(got, `{"jsonrpc":"2.0","id":7,"result":{"requestState":`)
	return strings.TrimSuffix(got, `}}`)
}

func TestStateComesBack(t *testing.T) {
	t.Parallel()
	b := newBinder(adapterapi.NewKey())
	for name, test := range map[string]struct {
		given    string            // by the server
		respell  *strings.Replacer // what the client does with it
		returned string            // to the server; as given if it is empty
	}{
		"plain":             {given: `"abc"`},
		"empty":             {given: `""`},
		"quotes":            {given: `"{\"step\":1}"`},
		"dots":              {given: `"a.b.c"`},
		"letters":           {given: `"é\u00e9"`},
		"long with escapes": {given: `"` + strings.Repeat("x", escapedBytes-sealSize-4) + `\n"`},
		"escaped by client": {given: `"é</"`, respell: strings.NewReplacer("é", `\u00e9`, "<", `\u003c`, "/", `\/`), returned: `"\u00e9\u003c\/"`},
		"long":              {given: `"` + strings.Repeat("x", 1<<20) + `"`},
	} {
		state := sealed(t, b, "corp:alice", test.given)
		if state == test.given || !strings.HasSuffix(state, test.given[1:]) {
			t.Errorf("%s: the client gets %.200s", name, state)
		}
		if test.respell != nil {
			state = test.respell.Replace(state)
		}
		if test.returned == "" {
			test.returned = test.given
		}
		got, err := claimed(t, b, "corp:alice", "tools/call", `"requestState":`+state+`,"name":"echo"`)
		want := `"requestState":` + strings.Repeat(" ", sealSize) + test.returned + `,"name":"echo"`
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: the server gets %.300s, %v", name, got, err)
		}
	}
}

func TestStatesThatDoNotCount(t *testing.T) {
	t.Parallel()
	b := newBinder(adapterapi.NewKey())
	of := func(principal caller.Principal, state string) string { return sealed(t, b, principal, state) }
	good, bobs := of("corp:alice", `"abc"`), of("corp:bob", `"abc"`)
	if got, err := claimed(t, b, "corp:bob", "tools/call", `"requestState":`+bobs); err != nil {
		t.Errorf("bob goes on with his own state: %s, %v", got, err)
	}
	for name, state := range map[string]string{
		"of another principal":     of("corp:bob", `"abc"`),
		"of another server":        sealed(t, newBinder(adapterapi.NewKey()), "corp:alice", `"abc"`),
		"as the server gave it":    `"abc"`,
		"of a name as long":        of("corp:alicf", `"abc"`),
		"with a shifted border":    strings.Replace(of("corp:alicea", `"bc"`), ".", ".a", 1),
		"changed":                  strings.Replace(good, "abc", "abd", 1),
		"longer":                   strings.Replace(good, "abc", "abcd", 1),
		"shorter":                  strings.Replace(good, "abc", "ab", 1),
		"without a state":          strings.Replace(good, "abc", "", 1),
		"without the dot":          strings.Replace(good, ".", "-", 1),
		"another proof":            `"` + strings.Repeat("A", sealSize-1) + `.abc"`,
		"no base64":                `"` + strings.Repeat("+", sealSize-1) + `.abc"`,
		"a proof alone":            `"` + strings.Repeat("A", sealSize-1) + `"`,
		"proof with bits too many": strings.Replace(good, good[sealSize-1:sealSize]+".", string(good[sealSize-1]+1)+".", 1),
		"proof with an escape":     `"\u00` + fmt.Sprintf("%02x", good[1]) + good[2:],
		"a number":                 `7`,
		"an object":                `{"a":1}`,
	} {
		if got, err := claimed(t, b, "corp:alice", "tools/call", `"requestState":`+state); !errors.Is(err, ErrState) {
			t.Errorf("%s: %.300s, %v", name, got, err)
		}
	}
	for name, params := range map[string]string{
		"none":         `"name":"echo"`,
		"null":         `"requestState":null`,
		"in arguments": `"name":"echo","arguments":{"requestState":"abc"}`,
	} {
		want := params
		if got, err := claimed(t, b, "corp:alice", "tools/call", params); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

// While the adapter reads a new key, other replicas and its clients still have the old one.
func TestStatesOutliveTheirKey(t *testing.T) {
	t.Parallel()
	older, newer := adapterapi.NewKey(), adapterapi.NewKey()
	params := `"requestState":` + sealed(t, newBinder(older), "corp:alice", `"abc"`)
	for name, test := range map[string]struct {
		b    *Binder
		want error
	}{
		"the next key": {newBinder(older, newer), nil},
		"accepted":     {newBinder(newer, older), nil},
		"withdrawn":    {newBinder(newer), ErrState},
	} {
		if _, err := claimed(t, test.b, "corp:alice", "tools/call", params); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnswersWithoutHandlesAreNotChanged(t *testing.T) {
	t.Parallel()
	b := newBinder(adapterapi.NewKey())
	for _, result := range []string{
		`{}`, `[]`, `"requestState"`, `{ "content" : [ {"type":"text","text":"\"requestState\""} ] }`,
		`{"structuredContent":{"requestState":"abc"}}`, `{"requestState":7}`, `{"requestState":null}`,
	} {
		if got, want := bound(t, b, "corp:alice", result), `{"jsonrpc":"2.0","id":7,"result":`+result+`}`; got != want {
			t.Errorf("%s becomes %s", result, got)
		}
	}
	for name, result := range map[string]string{
		"twice":         `{"requestState":"a","requestState":"b"}`,
		"other case":    `{"requestState":"a","RequestState":"b"}`,
		"much too long": `{"requestState":"` + strings.Repeat("x", escapedBytes-sealSize-3) + `\n"}`,
	} {
		if got := bound(t, b, "corp:alice", result); !strings.Contains(got, `"id":7`) || !strings.Contains(got, "-32603") {
			t.Errorf("%s: %.300s", name, got)
		}
	}
}

func TestEventIDs(t *testing.T) {
	t.Parallel()
	older, newer := adapterapi.NewKey(), adapterapi.NewKey()
	b := newBinder(older)
	good := string(b.BindEvent("corp:alice", []byte("e.1")))
	for _, of := range []*Binder{b, newBinder(newer, older)} {
		if id, ok := of.ClaimEvent("corp:alice", good); !ok || id != "e.1" {
			t.Errorf("alice resumes after %q, %t", id, ok)
		}
	}
	state := strings.Trim(sealed(t, b, "corp:alice", `"e.1"`), `"`)
	for name, id := range map[string]string{
		"of another principal": string(b.BindEvent("corp:alicf", []byte("e.1"))), "of the server": "e.1", "empty": "", "changed": good + "1",
		"a state": state, "no proof": good[proofSize:], "of another server": string(newBinder(newer).BindEvent("corp:alice", []byte("e.1"))),
	} {
		if own, ok := b.ClaimEvent("corp:alice", id); ok {
			t.Errorf("%s: alice resumes after %q", name, own)
		}
	}
}

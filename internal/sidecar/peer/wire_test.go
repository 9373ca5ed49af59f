package peer

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// The owner learns who the client is. A client cannot forge that, nor take it away.
func TestVouched(t *testing.T) {
	who := &identity.Identity{
		Issuer: "corp", User: "corp:b\u00f6b\n", Groups: []string{"system:authenticated", "corp:ops"}, Client: "corp:ide",
		Scopes: []string{"read"}, TokenID: "1", Actors: []string{"agent"}, Expires: time.Date(2026, 11, 18, 1, 2, 3, 4, time.UTC),
	}
	header := http.Header{
		"Authorization": {"Bearer token"}, "Accept": {"a", "b"}, headerPrincipal: {"forged"}, front.PeerPrefix + "Other": {"forged"}, adapterapi.HeaderProbe: {"p"},
		"Connection": {"keep-alive, " + headerPrincipal, headerClient + ",x-gone"}, "X-Gone": {"x"},
	}
	out := outgoing(header, "192.0.2.1:7", &caller.Caller{Grant: &access.Grant{Identity: who}})
	if diff := cmp.Diff(who, Vouched(&http.Request{Header: out})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	delete(out, headerPrincipal)
	if diff := cmp.Diff(http.Header{"Accept": {"a", "b"}, "Authorization": {"Bearer token"}, headerClient: {"192.0.2.1:7"}}, out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A token that this pod has not verified goes with the request: the owner may have to.
func TestNotVouched(t *testing.T) {
	out := outgoing(http.Header{"Authorization": {"Bearer a"}, headerPrincipal: {"forged"}}, "192.0.2.1:7", &caller.Caller{})
	if diff := cmp.Diff(http.Header{"Authorization": {"Bearer a"}, headerClient: {"192.0.2.1:7"}}, out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, header := range map[string][]string{"none": nil, "two": {"e30", "e30"}, "no base64": {"!"}, "no JSON": {"YQ"}, "no user": {"e30"}} {
		if who := Vouched(&http.Request{Header: http.Header{headerPrincipal: header}}); who != nil {
			t.Errorf("%s: %+v", name, who)
		}
	}
}

// FuzzForged finds out whether a client can say something to another pod that only pods may say. What it can say, the other
// pod must be able to read.
func FuzzForged(f *testing.F) {
	f.Add(headerPrincipal, "eyJpc3N1ZXIiOiJhIiwidXNlciI6ImIifQ")
	f.Add(headerClient, "192.0.2.9:1")
	f.Add("slipway-PEER-place", placeIfFree)
	f.Add("Connection", headerClient)
	f.Fuzz(func(t *testing.T, name, value string) {
		header := http.Header{}
		header.Set(name, value) // with the name as net/http reads it
		out := outgoing(header, "192.0.2.1:7", &caller.Caller{})
		if got := out[headerClient]; len(got) != 1 || got[0] != "192.0.2.1:7" {
			t.Errorf("the client is %q", got)
		}
		for name := range out {
			if strings.HasPrefix(http.CanonicalHeaderKey(name), front.PeerPrefix) && name != headerClient {
				t.Errorf("the client says %s", name)
			}
		}
		if who := Vouched(&http.Request{Header: http.Header{headerPrincipal: {value}}}); who != nil && who.User == "" {
			t.Errorf("%+v is no one", who)
		}
	})
}

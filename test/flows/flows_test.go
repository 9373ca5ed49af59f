//go:build conformance

// Package flows has clients of the official SDKs log in at an authorization server and use an adapter with
// auth, from the first 401 to the 403 that stays. It needs npm and Node.js, so it runs with the conformance
// suite.
package flows

import (
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/test/adapter"
	"github.com/slipway-mcp/slipway/test/authserver"
	"github.com/slipway-mcp/slipway/test/npm"
	"github.com/slipway-mcp/slipway/test/servers"
)

// programs are those of this module that the tests run, by their name.
var programs = map[string]*string{"sidecar": new(string), "echo": new(string), "matrix": new(string)}

func TestMain(m *testing.M) {
	os.Exit(servers.Run(m, map[string]*string{
		"cmd/sidecar": programs["sidecar"], "test/servers/echo": programs["echo"], "test/servers/matrix": programs["matrix"],
	}))
}

const (
	legacy = "2025-11-25"
	modern = "2026-07-28"

	callback = "http://127.0.0.1:1/callback" // nothing listens there
	ok       = "ok"
)

// The scopes: every call needs the one, and some need the other besides.
const (
	use   = "use"
	write = "write"
)

// A server has a tool for every step.
type server struct {
	program  string
	flags    []string
	revision string // that clients use
	who      string // says which process, or revision, serves the client
	more     string // needs the scope write besides
	never    string // has no rule
}

var columns = map[string]server{
	"with sessions":                {program: "echo", revision: legacy, who: "pid", more: "whoami", never: "exit"},
	"without sessions, translated": {program: "echo", flags: []string{"--stateless-clients", "Translate"}, revision: modern, who: "pid", more: "whoami", never: "exit"},
	"without sessions":             {program: "matrix", revision: modern, who: "revision", more: "count", never: "grow"},
}

// guarded is an adapter with auth.
type guarded struct {
	server
	url    string
	issuer *authserver.Server
}

// start runs the server behind an adapter that trusts an authorization server of its own.
func (s server) start(t *testing.T, lifetime time.Duration) guarded {
	t.Helper()
	address := freeAddress(t)
	url := "http://" + address + "/mcp"
	issuer := authserver.Start(t, authserver.Options{
		Path: "/tenant", Algorithms: []jose.SignatureAlgorithm{jose.ES256}, Lifetime: lifetime, Audience: url, // extauth does not send resource
		Clients: []authserver.Client{{ID: "app", RedirectURIs: []string{callback}, AuthMethod: "none"}, {ID: "bot", Secret: "hush"}},
	})
	everybody := adapter.Everything().Subjects
	document := adapter.NewAccess(t, url, adapter.Issuer(t, issuer.Issuer, url, issuer.Keys()),
		adapterapi.AccessRule{Subjects: everybody, Tools: []string{"echo", s.who}},
		adapterapi.AccessRule{Subjects: everybody, Tools: []string{s.more}, Scopes: []string{write}},
	)
	document.Scopes = []string{use}
	document.Write(t)
	flags := append([]string{"--listen", address, "--access-file", document.Path}, s.flags...)
	adapter.Start(t, *programs["sidecar"], append(flags, "--", *programs[s.program])...)
	return guarded{server: s, url: url, issuer: issuer}
}

// freeAddress is known before the adapter listens, because the access document names it.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// report is what a client says of every step: ok, or why not.
type report map[string]string

// client goes through all steps.
type client struct {
	run      func(t *testing.T, at guarded) report
	lifetime time.Duration // of its tokens
	only     string        // revision, if the client has one only
	// want is what it says where it cannot do a step: a part of the error.
	want report
	// grants are how it got its tokens.
	grants []string
}

// steps are those of all clients.
var steps = []string{"login", "call", "list", "refresh", "step-up", "never", "afterwards"}

const noRule = "no rule of this server allows you to call the tool"

// The SDK for Go renews a token that has less than ten seconds left, so it does here at every request.
var goClients = map[string]client{
	"go": {
		run: goUser(http.DefaultClient), lifetime: time.Second, want: report{"never": noRule},
		grants: []string{"authorization_code", "refresh_token", "authorization_code", "refresh_token"},
	},
	"go, without a challenge": {
		run: goUser(&http.Client{Transport: withoutChallenge{}}), lifetime: time.Second, only: legacy, want: report{"never": noRule},
		grants: []string{"authorization_code", "refresh_token", "authorization_code", "refresh_token"},
	},
	"go, client credentials": {run: goBot, lifetime: time.Second, want: report{"never": noRule}, grants: []string{"client_credentials"}},
}

// Version 1 refreshes its token when it should ask for more scopes, and gives up when the new one is as good as
// the old one. Without a refresh token it asks for those of the challenge. Version 2 asks for more at once.
func nodeClients(modules string) map[string]client {
	v1 := client{
		run: node(modules, "v1.mjs", nil), lifetime: time.Hour, only: legacy,
		want:   report{"never": noRule, "step-up": "Server returned 403 after trying upscoping", "step-up without a refresh token": ok},
		grants: []string{"authorization_code", "refresh_token", "refresh_token", "authorization_code"},
	}
	v2 := client{
		run: node(modules, "v2.mjs", nil), lifetime: time.Hour, want: report{"never": noRule},
		grants: []string{"authorization_code", "refresh_token", "authorization_code"},
	}
	atRoot := map[string]string{"metadata": "root"}
	v1AtRoot, v2AtRoot := v1, v2
	v1AtRoot.run = node(modules, "v1.mjs", atRoot)
	v2AtRoot.run, v2AtRoot.only = node(modules, "v2.mjs", atRoot), modern
	return map[string]client{
		"typescript-v1": v1, "typescript-v1, metadata at the root": v1AtRoot,
		"typescript-v2": v2, "typescript-v2, metadata at the root": v2AtRoot,
	}
}

// Every client goes the whole way with every server that it can talk to.
func TestClients(t *testing.T) {
	modules, err := npm.Install(t.Context(), "../eras") // it pins both SDKs
	if err != nil {
		t.Fatal(err)
	}
	clients := nodeClients(modules)
	maps.Copy(clients, goClients)
	for name, s := range columns {
		for who, c := range clients {
			if c.only != "" && c.only != s.revision {
				continue
			}
			t.Run(name+"/"+who, func(t *testing.T) {
				t.Parallel()
				at := s.start(t, c.lifetime)
				c.check(t, c.run(t, at))
				got := at.issuer.Grants()
				if c.lifetime < time.Minute { // it gets one for every request
					if len(got) < len(steps) {
						t.Errorf("%d tokens for %d steps", len(got), len(steps))
					}
					got = slices.Compact(got)
				}
				if diff := cmp.Diff(c.grants, got); diff != "" {
					t.Errorf("tokens (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func (c client) check(t *testing.T, got report) {
	t.Helper()
	want := report{}
	for _, step := range steps {
		want[step] = ok
	}
	maps.Copy(want, c.want)
	for step, part := range want {
		if said := got[step]; said != part && (part == ok || !strings.Contains(said, part)) {
			t.Errorf("%s: the client says %q, want %q", step, said, part)
		}
	}
}

// Both places have the metadata, and the challenge names one of them.
func TestMetadata(t *testing.T) {
	at := columns["with sessions"].start(t, time.Hour)
	response, err := http.Post(at.url, "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	challenges, err := oauthex.ParseWWWAuthenticate(response.Header.Values("WWW-Authenticate"))
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSuffix(at.url, "/mcp") + "/.well-known/oauth-protected-resource"
	want := []oauthex.Challenge{{Scheme: "bearer", Params: map[string]string{"resource_metadata": root + "/mcp", "scope": use}}}
	if diff := cmp.Diff(want, challenges); diff != "" || response.StatusCode != http.StatusUnauthorized {
		t.Errorf("%s, challenges (-want +got):\n%s", response.Status, diff)
	}
	for _, place := range []string{root, root + "/mcp"} {
		metadata, err := oauthex.GetProtectedResourceMetadata(t.Context(), place, at.url, http.DefaultClient)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{at.issuer.Issuer}, metadata.AuthorizationServers); diff != "" {
			t.Errorf("authorization servers (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{use}, metadata.ScopesSupported); diff != "" {
			t.Errorf("scopes (-want +got):\n%s", diff)
		}
	}
}

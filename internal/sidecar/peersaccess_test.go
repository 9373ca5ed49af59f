package sidecar

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/test/hang"
)

// recorded has the records of all requests, by the replica that made them.
type recorded struct {
	mu  sync.Mutex
	all []string
}

func (r *recorded) note(record edge.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	who := ""
	if identity := record.Caller.Identity(); identity != nil {
		who = identity.User
	}
	r.all = append(r.all, record.Method+" by "+who+" from "+record.Caller.Address)
}

func (r *recorded) has(want string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.all, want)
}

// The owner knows who the client of another replica is, and its own document decides. A token that the client may
// not use is refused at the entry. Nothing that a client sends makes it another one.
func TestForwardedCallers(t *testing.T) {
	t.Parallel()
	entryGuard := newGuard(t, nil)
	ownerGuard := &guard{t: t, issuer: entryGuard.issuer, gate: newGuard(t, nil).gate, document: entryGuard.document}
	ownerGuard.take(func(a *adapterapi.Access) {
		a.Generation = 100
		a.Rules = append(a.Rules, adapterapi.AccessRule{
			Subjects: []adapterapi.AccessSubject{{Kind: adapterapi.SubjectUser, Name: "corp:root"}}, Tools: []string{"count"},
		})
		a.Hidden = append(a.Hidden, "pid") // only at the owner
	})
	var records recorded
	number := 0
	replicas := startReplicas(t, 2, func(c *config.Config) {
		c.Access = entryGuard.gate
		if number++; number == 1 {
			c.Access, c.Recorded = ownerGuard.gate, records.note
		}
	})
	url := func(i int) string { return "http://" + replicas[i].host + Path }
	at := func(i int, token, body string, headers ...string) *http.Response {
		t.Helper()
		response := entryGuard.request(http.MethodPost, url(i), token, body, append([]string{"Host", "echo.demo.svc"}, headers...)...)
		t.Cleanup(func() { _ = response.Body.Close() })
		return response
	}
	root := entryGuard.token("root", nil)
	opened := at(0, root, initializeMessage)
	id := opened.Header.Get("Mcp-Session-Id")
	if id == "" {
		t.Fatalf("got %s", opened.Status)
	}
	for name, test := range map[string]struct {
		token  string
		tool   string
		header []string
		want   int
	}{
		"the same user":                      {token: root, tool: "echo", want: http.StatusOK},
		"a refreshed token":                  {token: entryGuard.token("root", map[string]any{"jti": "2"}), tool: "echo", want: http.StatusOK},
		"long headers, and many groups":      {token: entryGuard.token("root", map[string]any{"groups": manyGroups()}), tool: "echo", header: []string{"X-Long", strings.Repeat("x", 50<<10)}, want: http.StatusOK},
		"another user":                       {token: entryGuard.token("alice", nil), tool: "echo", want: http.StatusNotFound},
		"another user who claims to be":      {token: entryGuard.token("alice", nil), tool: "echo", header: []string{"Slipway-Peer-Principal", "eyJ1c2VyIjoiY29ycDpyb290In0"}, want: http.StatusNotFound},
		"another user with a trick":          {token: entryGuard.token("alice", nil), tool: "echo", header: []string{"Connection", "Slipway-Peer-Principal"}, want: http.StatusNotFound},
		"no token":                           {token: "", tool: "echo", want: http.StatusUnauthorized},
		"a tool that the owner's rules hide": {token: root, tool: "pid", want: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			response := at(1, test.token, call(1, test.tool, `"text":"x"`), append([]string{"Mcp-Session-Id", id}, test.header...)...)
			if response.StatusCode != test.want {
				t.Errorf("got %s, want %d", response.Status, test.want)
			}
		})
	}
	if want := "tools/call by corp:root from 127.0.0.1"; !records.has(want) {
		t.Errorf("the owner has no record %q, but %s", want, strings.Join(records.all, "; "))
	}
}

// manyGroups are as many as a token may have.
func manyGroups() (groups []string) {
	for i := range 256 {
		groups = append(groups, strings.Repeat("g", 25)+strconv.Itoa(i))
	}
	return groups
}

// awayAddress is where clients of the tests below connect from. Connections between replicas come from another one.
const awayAddress = "127.0.0.9"

// awayClient returns a client with that address.
func awayClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{
		DialContext:        (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(awayAddress)}}).DialContext,
		DisableCompression: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// away posts a message to a replica, and returns the status and the session in the answer.
func away(t *testing.T, client *http.Client, to *replica, header http.Header, body string) (status int, session string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+to.host+Path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "echo.demo.svc"
	r.Header = header.Clone()
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header.Get(sessionHeader)
}

// Clients cannot pretend to be another pod: at their port the headers between pods mean nothing, with or without an
// access document, and no pod passes them on.
func TestHeadersBetweenPods(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		guarded bool
		user    string // in all records
	}{"without a document": {}, "with a document": {true, "corp:root"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, token, records := newGuard(t, nil), "", recorded{}
			if test.guarded {
				token = g.token("root", nil)
			}
			replicas := startReplicas(t, 2, func(c *config.Config) {
				if c.Recorded = records.note; test.guarded {
					c.Access = g.gate
				}
			})
			client, owner, entry := awayClient(t), replicas[0], replicas[1]
			pretended, err := json.Marshal(map[string]any{"issuer": g.issuer.Issuer, "user": "corp:alice", "scopes": []string{"mcp:use"}, "expires": time.Now().Add(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			header := http.Header{
				"Slipway-Peer-Client": {"192.0.2.7:1"}, "Slipway-Peer-Principal": {base64.RawURLEncoding.EncodeToString(pretended)},
			}
			if test.guarded {
				for _, at := range replicas {
					if status, _ := away(t, client, at, header, initializeMessage); status != http.StatusUnauthorized {
						t.Errorf("without a token: %d", status)
					}
				}
				header.Set("Authorization", token)
				records.wait(t, len(replicas))
				records.forget()
			}
			status, session := away(t, client, owner, header, initializeMessage)
			if status != http.StatusOK {
				t.Fatalf("got %d", status)
			}
			header.Set(sessionHeader, session)
			for _, at := range replicas {
				if status, _ := away(t, client, at, header, call(1, "echo", `"text":"x"`)); status != http.StatusOK {
					t.Errorf("got %d", status)
				}
			}
			if entry.forwarded() != 1 {
				t.Errorf("%d requests were passed on", entry.forwarded())
			}
			want := " by " + test.user + " from " + awayAddress
			for _, got := range records.wait(t, 4) { // initialize, the call at the owner, and the other one at both
				if !strings.HasSuffix(got, want) {
					t.Errorf("%q, want %q", got, want)
				}
			}
		})
	}
}

// wait returns the records when there are so many.
func (r *recorded) wait(t *testing.T, count int) []string {
	t.Helper()
	for deadline := time.Now().Add(hang.Guard); ; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		all := slices.Clone(r.all)
		r.mu.Unlock()
		if len(all) == count {
			return all
		}
		if len(all) > count || time.Now().After(deadline) {
			t.Fatalf("%d records, want %d: %s", len(all), count, strings.Join(all, "; "))
		}
	}
}

func (r *recorded) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = nil
}

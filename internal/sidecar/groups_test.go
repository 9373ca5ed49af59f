package sidecar

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
)

// member is a client of 2026-07-28. All with the same token, or the same address and none, and the same capabilities are a
// group: the server has one memory for them.
type member struct {
	t            *testing.T
	token        string
	capabilities string
	headers      map[string]string
	http         *http.Client
}

// canBeAsked are the capabilities of a client that gives input.
const canBeAsked = `{"elicitation":{"form":{}}}`

// do makes a request at a replica. The caller closes the body.
func (m member) do(ctx context.Context, at *replica, method, params string) (*http.Response, error) {
	text := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":` + cmp.Or(m.capabilities, "{}") + `}}}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+at.host+Path, strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	header := map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Authorization": m.token,
	}
	if name, ok := strings.CutPrefix(params, `"name":"`); ok {
		header["Mcp-Name"], _, _ = strings.Cut(name, `"`)
	}
	for name, value := range header {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	for name, value := range m.headers {
		r.Header.Set(name, value)
	}
	return cmp.Or(m.http, http.DefaultClient).Do(r)
}

// ask makes a request and reads its answer, or the last event of it.
func (m member) ask(at *replica, method, params string) (status int, header http.Header, answer input) {
	m.t.Helper()
	response, err := m.do(m.t.Context(), at, method, params)
	if err != nil {
		m.t.Error(err)
		return 0, nil, input{}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if at := strings.LastIndex(string(body), "data: "); at >= 0 {
		body = body[at+len("data: "):]
	}
	if err != nil || len(body) > 0 && json.Unmarshal(body, &answer) != nil {
		m.t.Errorf("%s: got %s %s, %v", method, response.Status, body, err)
	}
	return response.StatusCode, response.Header, answer
}

// count has the server count the calls of the group. It returns 0 if it does not.
func (m member) count(at *replica) int {
	m.t.Helper()
	status, _, answer := m.ask(at, "tools/call", `"name":"count",`)
	count, err := strconv.Atoi(answer.text())
	if err != nil {
		m.t.Errorf("got %d %+v", status, answer)
	}
	return count
}

// wantCount has the group's calls be so many with this one.
func (m member) wantCount(at *replica, want int) {
	m.t.Helper()
	if got := m.count(at); got != want {
		m.t.Errorf("the server counts %d calls, want %d", got, want)
	}
}

// memories is how many processes or sessions the replica has had for groups.
func (r *replica) memories(t *testing.T) int {
	t.Helper()
	started, err := strconv.Atoi(r.metric(t, "slipway_adapter_tomodern_starts_total"))
	if err != nil {
		t.Fatal(err)
	}
	return started
}

// homeAmong returns the one replica that has a memory, and the others.
func homeAmong(t *testing.T, replicas []*replica) (home *replica, others []*replica) {
	t.Helper()
	for _, r := range replicas {
		switch {
		case r.memories(t) == 0:
			others = append(others, r)
		case home != nil || r.memories(t) > 1:
			t.Fatal("there are two memories")
		default:
			home = r
		}
	}
	if home == nil {
		t.Fatal("there is no memory")
	}
	return home, others
}

// translating has replicas translate for clients without sessions.
func translating(c *config.Config) { c.StatelessClients = config.Translate }

// clientFrom returns an HTTP client at another address of this machine.
func clientFrom(t *testing.T, address string) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Each group has one memory, whichever replicas its requests reach, and no two groups have the same.
func TestGroupsHaveOneMemory(t *testing.T) {
	t.Parallel()
	const rounds = 3
	replicas := startReplicas(t, 3, func(c *config.Config) { c.StatelessClients, c.MaxSessions = config.Translate, 64 })
	enlist(t, 1, replicas, 3, nil)
	var members []member
	for n := range 6 {
		token := fmt.Sprintf("Bearer %d", n)
		members = append(members, member{t: t, token: token}, member{t: t, token: token, capabilities: canBeAsked})
	}
	for n := range 4 {
		members = append(members, member{t: t, http: clientFrom(t, fmt.Sprintf("127.0.1.%d", n+1))})
	}
	var running sync.WaitGroup
	for n, m := range members {
		running.Go(func() {
			for i := range rounds * len(replicas) {
				entry := replicas[(n+i)%len(replicas)]
				m.wantCount(entry, i+1)
				for _, method := range []string{"server/discover", "tools/list"} {
					if status, _, answer := m.ask(entry, method, ""); status != http.StatusOK || answer.Error.Code != 0 {
						t.Errorf("%s: %d %+v", method, status, answer)
					}
				}
			}
		})
	}
	running.Wait()
	memories := 0
	for i, r := range replicas {
		had := r.memories(t)
		memories += had
		if had == 0 || r.forwarded() == 0 {
			t.Errorf("replica %d has %d memories, and passed on %d requests", i, had, r.forwarded())
		}
	}
	if memories != len(members) {
		t.Errorf("%d groups have %d memories", len(members), memories)
	}
}

// The name of a verified caller makes the group, at the entry as at the pod that has its memory, and not the token or the
// address.
func TestGroupsOfVerifiedCallers(t *testing.T) {
	t.Parallel()
	g := newGuard(t, everythingForAll)
	replicas := startReplicas(t, 3, g.guarded(translating))
	enlist(t, 1, replicas, 3, nil)
	const users = 5
	for n := range users {
		user := fmt.Sprintf("user%d", n)
		for i, r := range replicas {
			m := member{t: t, token: g.token(user, map[string]any{"jti": strconv.Itoa(i)}), http: clientFrom(t, fmt.Sprintf("127.0.2.%d", i+1))}
			m.wantCount(r, i+1)
		}
	}
	memories := 0
	for _, r := range replicas {
		memories += r.memories(t)
	}
	if memories != users {
		t.Errorf("%d users have %d memories", users, memories)
	}
}

// A server that speaks HTTP has a session for each group.
func TestGroupsOfHTTPServers(t *testing.T) {
	t.Parallel()
	for name, transport := range map[string]config.Transport{"streamable-http": config.StreamableHTTP, "sse": config.SSE} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replicas := startReplicas(t, 3, func(c *config.Config) {
				server := countingServer() // of this replica, with one memory for all
				one := func(*http.Request) *mcp.Server { return server }
				handler := http.Handler(mcp.NewStreamableHTTPHandler(one, nil))
				if transport == config.SSE {
					handler = mcp.NewSSEHandler(one, nil)
				}
				c.StatelessClients, c.Transport, c.UpstreamURL = config.Translate, transport, serveHTTP(t, handler)
				if transport == config.StreamableHTTP {
					c.Era = sessionless.Legacy // it speaks both
				}
			})
			enlist(t, 1, replicas, 3, nil)
			m := member{t: t, token: "Bearer x"}
			for i := range 3 * len(replicas) {
				m.wantCount(replicas[i%len(replicas)], i+1)
			}
			homeAmong(t, replicas)
		})
	}
}

// What needs no memory of a group is answered where it arrives.
func TestNoGroup(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*config.Config)
		command []string
		enlist  func(t *testing.T, replicas []*replica) // instead of a list with all
		headers map[string]string
		probes  bool
		method  string
		params  string
		status  int
	}{
		"a server of both eras":         {command: []string{bothServer}, change: translating, method: "tools/list", status: http.StatusOK},
		"a process that all share":      {change: func(c *config.Config) { c.StatelessClients, c.Shared = config.Translate, true }, method: "tools/list", status: http.StatusOK},
		"clients that are to open one":  {method: "tools/list", status: http.StatusBadRequest},
		"the manager's probe":           {change: translating, probes: true, method: "tools/list", status: http.StatusBadRequest},
		"a method of tasks":             {change: translating, method: "tasks/get", params: `"taskId":"x",`, headers: map[string]string{"Mcp-Name": "x"}, status: http.StatusNotFound},
		"a method of another revision":  {change: translating, method: "ping", status: http.StatusNotFound},
		"capabilities that are unclear": {change: translating, method: "tools/list", params: `"_meta":{},`, status: http.StatusBadRequest},
		"no list":                       {change: translating, method: "tools/list", status: http.StatusOK, enlist: func(*testing.T, []*replica) {}},
		"a list of this pod alone": {change: translating, method: "tools/list", status: http.StatusOK, enlist: func(t *testing.T, replicas []*replica) {
			for _, r := range replicas {
				enlist(t, 1, []*replica{r}, 1, nil)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replicas := startReplicas(t, 3, test.change, test.command...)
			if test.enlist != nil {
				test.enlist(t, replicas)
			} else {
				enlist(t, 1, replicas, 3, nil)
			}
			m := member{t: t, headers: test.headers}
			for i, r := range replicas {
				if test.probes { // a proof is good for seconds
					m.headers = map[string]string{adapterapi.HeaderProbe: proofOf(testKey, testPodUID, time.Now())}
				}
				if status, _, answer := m.ask(r, test.method, test.params); status != test.status {
					t.Errorf("replica %d: %d %+v, want %d", i, status, answer, test.status)
				}
				if r.dials() != 0 || r.peers.relay.Forwards(relay.Answered) != 0 {
					t.Errorf("replica %d passes the request on", i)
				}
			}
		})
	}
}

package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/test/hang"
)

// asking is a client of 2026-07-28 that can give input.
type asking struct{ t *testing.T }

// input is an answer of the server, as such a client reads it.
type input struct {
	Result struct {
		State    string                     `json:"requestState"`
		Requests map[string]json.RawMessage `json:"inputRequests"`
		Content  []struct{ Text string }    `json:"content"`
	} `json:"result"`
	Error struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	status int
}

func (i *input) text() string {
	if len(i.Result.Content) == 0 {
		return ""
	}
	return i.Result.Content[0].Text
}

// post calls a tool at a replica. The caller closes the body.
func (a asking) post(ctx context.Context, at *replica, tool, params string) (*http.Response, error) {
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `",` + params +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+at.host+Path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
	} {
		r.Header.Set(name, value)
	}
	return http.DefaultClient.Do(r)
}

func (a asking) call(at *replica, tool, params string) input {
	a.t.Helper()
	response, err := a.post(a.t.Context(), at, tool, params)
	if err != nil {
		a.t.Error(err)
		return input{}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	got := input{status: response.StatusCode}
	if at := bytes.LastIndex(body, []byte("data: ")); at >= 0 {
		body = body[at+len("data: "):]
	}
	if err != nil || json.Unmarshal(body, &got) != nil {
		a.t.Errorf("got %s %s, %v", response.Status, body, err)
	}
	return got
}

// park begins a call that asks for input, and returns the state to go on with.
func (a asking) park(at *replica, n int) string {
	a.t.Helper()
	got := a.call(at, "ask", fmt.Sprintf(`"arguments":{"text":"%d?"},`, n))
	if len(got.Result.State) > 256 || got.Result.State == "" || len(got.Result.Requests) != 1 {
		a.t.Errorf("call %d is not parked: %+v", n, got)
	}
	return got.Result.State
}

// goOn goes on with the call.
func (a asking) goOn(at *replica, n int, state string) input {
	a.t.Helper()
	return a.call(at, "ask", fmt.Sprintf(
		`"arguments":{"text":"%d?"},"requestState":"%s","inputResponses":{"r1":{"action":"accept","content":{"answer":"%d!"}}},`, n, state, n))
}

// A call that waits for its client goes on where it waits, at whichever replica the client comes back. If that one is gone,
// the client hears that it must call again. No process is called twice.
func TestParkedCallsGoOnAtAnyEntry(t *testing.T) {
	t.Parallel()
	const going, lost = 100, 20
	replicas := startReplicas(t, 3, func(c *config.Config) {
		c.StatelessClients, c.MaxSessions = config.Translate, 2*(going/2+lost)
	})
	client := asking{t}
	var running sync.WaitGroup
	for n := range going {
		running.Go(func() {
			state := client.park(replicas[n%2], n)
			if got := client.goOn(replicas[1+n%2], n, state); !strings.Contains(got.text(), fmt.Sprintf("%d!", n)) {
				t.Errorf("call %d: %+v", n, got)
			}
		})
	}
	running.Wait()
	for i, r := range replicas {
		if wants := i > 0; (r.forwarded() == going/2) != wants {
			t.Errorf("replica %d passed on %d requests", i, r.forwarded())
		}
	}
	var states [lost]string
	for n := range states {
		states[n] = client.park(replicas[0], n)
	}
	replicas[0].stop()
	for n, state := range states {
		if got := client.goOn(replicas[1+n%2], n, state); got.Error.Code != -32602 || got.status != http.StatusOK || !strings.Contains(got.Error.Message, "call again") {
			t.Errorf("call %d, whose owner is gone: %+v", n, got)
		}
	}
}

// A state that a server keeps in the memory of one process comes back to that process, and in its own words. If the process
// is gone, any other one gets the state.
func TestStatesOfServersComeBack(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) []*replica{
		"stdio": func(t *testing.T) []*replica { return startReplicas(t, 3, nil, bothServer) },
		"http, JSON": func(t *testing.T) []*replica {
			return startReplicas(t, 3, func(c *config.Config) {
				c.Transport, c.UpstreamURL = config.StreamableHTTP, serveHTTP(t, &httpServer{initialize: refuseInitialize, call: remembering(reply)})
			})
		},
		"http, events": func(t *testing.T) []*replica {
			return startReplicas(t, 3, func(c *config.Config) {
				c.Transport, c.UpstreamURL = config.StreamableHTTP, serveHTTP(t, &httpServer{initialize: refuseInitialize, call: remembering(replyInEvents)})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replicas := start(t)
			client := asking{t}
			for i := range replicas {
				for j := range replicas {
					state := client.call(replicas[i], "remember", "").Result.State
					if got := client.call(replicas[j], "remember", goingOn(state)); got.text() != "remembered" {
						t.Errorf("from %d to %d: %+v", i, j, got)
					}
				}
			}
			for i, r := range replicas {
				if r.forwarded() != 2 {
					t.Errorf("replica %d passed on %d requests", i, r.forwarded())
				}
			}
			state := client.call(replicas[0], "remember", "").Result.State
			replicas[0].stop()
			for _, r := range replicas[1:] {
				if got := client.call(r, "remember", goingOn(state)); got.text() != "forgotten" {
					t.Errorf("the owner is gone: %+v", got)
				}
			}
		})
	}
}

// goingOn are the parameters of a call that goes on with a state.
func goingOn(state string) string {
	text, err := json.Marshal(state)
	if err != nil {
		panic(err)
	}
	return `"requestState":` + string(text) + `,`
}

func replyInEvents(w http.ResponseWriter, id, result string) {
	sayEvent(w, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"message":"`+strings.Repeat("requestState", 8<<10)+`"}}`)
	sayEvent(w, `{"jsonrpc":"2.0","id":`+id+`,"result":`+result+`}`)
}

// remembering is the tool of a server that knows the states which it has given.
func remembering(reply func(w http.ResponseWriter, id, result string)) func(http.ResponseWriter, *http.Request, string, []byte) {
	var mu sync.Mutex
	known := map[string]bool{}
	return func(w http.ResponseWriter, _ *http.Request, id string, body []byte) {
		var request struct {
			Params struct {
				State string `json:"requestState"`
			} `json:"params"`
		}
		_ = json.Unmarshal(body, &request)
		mu.Lock()
		defer mu.Unlock()
		if request.Params.State == "" {
			state := fmt.Sprintf("state <%d> of \"\u00e9\"", len(known))
			known[state] = true
			text, _ := json.Marshal(state)
			reply(w, id, `{"resultType":"input_required","requestState":`+string(text)+`}`)
			return
		}
		text := "forgotten"
		if known[request.Params.State] {
			text = "remembered"
		}
		reply(w, id, `{"resultType":"complete","content":[{"type":"text","text":"`+text+`"}]}`)
	}
}

// What no pod of this server has given to the client costs no connection, and no call.
func TestForgedStates(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 2, func(c *config.Config) { c.StatelessClients, c.MaxSessions = config.Translate, 8 })
	client := asking{t}
	genuine := client.park(replicas[0], 1)
	at := strings.IndexByte(genuine, '.')
	for name, state := range map[string]string{
		"altered seal": "B" + genuine[1:], "another ticket": genuine[:at] + ".ABCDEFGHIJKLMNOPQRSTUVWXYZ", "altered ticket": genuine[:len(genuine)-1] + "_",
		"without a ticket": genuine[:at+1], "without a dot": genuine[:at], "a ticket": genuine[at+1:], "empty": "", "long": strings.Repeat("A", 60<<10),
		"session": replicas[0].env.MintID() + "." + genuine[at+1:],
	} {
		if got := client.goOn(replicas[1], 1, state); got.Error.Code != -32602 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if dials := replicas[1].dials(); dials != 0 {
		t.Errorf("%d connections for forged states", dials)
	}
	if got := client.goOn(replicas[1], 1, genuine); !strings.Contains(got.text(), "1!") {
		t.Errorf("the genuine one: %+v", got)
	}
}

// A client of another token, or of none, does not go on with the call, and does not make a pod connect to another one.
func TestForeignStates(t *testing.T) {
	t.Parallel()
	g := newGuard(t, everythingForAll)
	replicas := startReplicas(t, 2, func(c *config.Config) { c.Access, c.StatelessClients = g.gate, config.Translate })
	ask := func(at int, user, more string) input {
		t.Helper()
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{"text":"?"},` + more +
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}}`
		got := g.ask(http.MethodPost, "http://"+replicas[at].host+Path, g.token(user, nil), body, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "ask")
		var in input
		if err := json.Unmarshal([]byte(got.message), &in); err != nil {
			t.Fatalf("%s: %v", got.message, err)
		}
		return in
	}
	more := `"requestState":"` + ask(0, "alice", "").Result.State + `","inputResponses":{"r1":{"action":"accept","content":{"answer":"yes"}}},`
	if got := ask(1, "bob", more); got.Error.Code != -32602 {
		t.Errorf("bob gets %+v", got)
	}
	if dials := replicas[1].dials(); dials != 0 {
		t.Errorf("%d connections for bob", dials)
	}
	if got := ask(1, "alice", more); !strings.Contains(got.text(), "yes") {
		t.Errorf("alice gets %+v", got)
	}
}

// A client without a session cancels by going away, also from a call that another replica answers. Each call counts
// once, where it is answered.
func TestLeavingAForwardedCall(t *testing.T) {
	t.Parallel()
	gone, begun := make(chan struct{}), make(chan struct{})
	server := &httpServer{initialize: refuseInitialize, call: func(w http.ResponseWriter, r *http.Request, id string, body []byte) {
		if !strings.Contains(string(body), `"requestState"`) {
			reply(w, id, `{"resultType":"input_required","requestState":"s"}`)
			return
		}
		close(begun)
		<-r.Context().Done()
		close(gone)
	}}
	var mu sync.Mutex
	counted := map[int]int{}
	number := 0
	replicas := startReplicas(t, 2, func(c *config.Config) {
		at := number
		number++
		c.Transport, c.UpstreamURL = config.StreamableHTTP, serveHTTP(t, server)
		c.Recorded = func(record edge.Record) {
			mu.Lock()
			defer mu.Unlock()
			if record.Method == "tools/call" {
				counted[at]++
			}
		}
	})
	client := asking{t}
	state := client.call(replicas[0], "t", "").Result.State
	ctx, leave := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		response, err := client.post(ctx, replicas[1], "t", `"requestState":"`+state+`",`)
		if err == nil {
			_ = response.Body.Close()
		}
		answered <- err
	}()
	<-begun
	leave()
	<-gone
	if err := <-answered; err == nil {
		t.Error("the call is answered")
	}
	gomega.NewWithT(t).Eventually(func() map[int]int {
		mu.Lock()
		defer mu.Unlock()
		return map[int]int{0: counted[0], 1: counted[1]}
	}).WithTimeout(hang.Guard).Should(gomega.Equal(map[int]int{0: 2, 1: 0}))
	gomega.NewWithT(t).Eventually(func() uint64 { return replicas[1].peers.relay.Forwards(relay.Client) }).WithTimeout(hang.Guard).Should(gomega.BeEquivalentTo(1))
}

package proxy

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/handle"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/test/hang"
)

// alice is a verified caller with these rights.
type alice struct{ rights *rules.Rights }

func (a alice) Authenticate(*http.Request) (caller.Caller, *edge.Refusal) {
	who := &identity.Identity{Issuer: "corp", User: "corp:alice", Groups: []string{"system:authenticated"}}
	return caller.Caller{Principal: "corp:alice", Grant: &access.Grant{Identity: who, Principal: "corp:alice", Rights: a.rights}}, nil
}

// newVerified returns a proxy for alice, who sees the tools that begin with "a".
func newVerified(t *testing.T, server http.Handler, memory *budget.Budget) *endpoint {
	t.Helper()
	policy, err := rules.Compile(&adapterapi.Access{Mode: adapterapi.AccessRequired, Rules: []adapterapi.AccessRule{{
		Subjects: []adapterapi.AccessSubject{{Kind: adapterapi.SubjectUser, Name: "corp:alice"}}, Tools: []string{"a*"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	rights := policy.For(&identity.Identity{Issuer: "corp", User: "corp:alice", Groups: []string{"system:authenticated"}})
	return newEndpoint(t, newBackend(t, server), func(o *Options) {
		o.Handles = newHandles(t, false)
		o.Memory = memory
	}, func(o *edge.Options) { o.Authenticate = alice{rights} })
}

func newHandles(t *testing.T, peers bool) *handle.Binder {
	t.Helper()
	held, err := keys.New(adapterapi.Keyring{Current: adapterapi.NewKey()}, "")
	if err != nil {
		t.Fatal(err)
	}
	return handle.New(handle.Options{Keys: held, Peers: peers})
}

const (
	listTools = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	callTool  = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`
)

// large is the beginning and the end of an answer that the proxy must read whole.
func large(member string) (begin, end string) {
	return `{"jsonrpc":"2.0","id":1,"result":{"text":"` + strings.Repeat("x", 300<<10), `",` + member + `}}`
}

// What the proxy reads for verified callers takes room of the budget, until the client has it.
func TestAnswersTakeRoom(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ body, contentType, member string }{
		"a list":            {listTools, typeJSON, `"tools":[{"name":"a"},{"name":"b"}]`},
		"a list in events":  {listTools, typeEvents, `"tools":[{"name":"a"},{"name":"b"}]`},
		"a state":           {callTool, typeJSON, `"requestState":"s"`},
		"a state in events": {callTool, typeEvents, `"requestState":"s"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, goOn, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
			memory := budget.New(4<<20, 1)
			e := newVerified(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				begin, end := large(test.member)
				if test.contentType == typeEvents {
					begin, end = "data: "+begin, end+"\n\n"
				}
				w.Header().Set("Content-Type", test.contentType)
				_, _ = io.WriteString(w, begin)
				_ = http.NewResponseController(w).Flush()
				close(begun)
				<-goOn
				_, _ = io.WriteString(w, end)
				if test.contentType == typeEvents { // the stream goes on
					_ = http.NewResponseController(w).Flush()
					<-over
				}
			}), memory)
			got := make(chan string, 1)
			go func() { got <- text(t, e.Do(http.MethodPost, test.body)) }()
			within(t, "the server to begin", begun)
			eventually := gomega.NewWithT(t).Eventually
			eventually(memory.Used).WithTimeout(hang.Guard).Should(gomega.BeNumerically(">=", 300<<10))
			close(goOn)
			eventually(memory.Used).WithTimeout(hang.Guard).Should(gomega.BeZero())
			close(over)
			if all := within(t, "the answer", got); strings.Contains(all, `{"name":"b"}`) || strings.Contains(all, `"requestState":"s"`) || len(all) < 300<<10 {
				t.Errorf("alice gets %d bytes, at the end %s", len(all), all[max(0, len(all)-200):])
			}
		})
	}
}

// Without room, no list passes unread. An answer that only might have a handle passes as it is.
func TestAnswersWithoutRoom(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body, contentType, member string
		fails                     bool // otherwise the answer passes as it is
	}{
		"a list":           {body: listTools, contentType: typeJSON, member: `"tools":[{"name":"b"}]`, fails: true},
		"a list in events": {body: listTools, contentType: typeEvents, member: `"tools":[{"name":"b"}]`, fails: true},
		"a call":           {body: callTool, contentType: typeJSON, member: `"requestState":"s"`},
		"a call in events": {body: callTool, contentType: typeEvents, member: `"requestState":"s"`, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin, end := large(test.member)
			answer := begin + end
			if test.contentType == typeEvents {
				answer = "data: " + answer + "\n\n"
			}
			memory := budget.New(1<<20, 1)
			memory.Patience = 0
			if !memory.Take(900 << 10) {
				t.Fatal("there is no room to begin with")
			}
			e := newVerified(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.contentType)
				_, _ = io.WriteString(w, answer)
			}), memory)
			response := e.Do(http.MethodPost, test.body)
			all, err := io.ReadAll(response.Body)
			switch got := string(all); {
			case test.fails && (err != nil || response.StatusCode != http.StatusOK || !strings.Contains(got, `"id":1,"error"`) || !strings.Contains(got, budget.ErrNoRoom.Error())):
				t.Errorf("alice gets %d %.300s, %v", response.StatusCode, got, err)
			case !test.fails && (err != nil || got != answer):
				t.Errorf("alice gets %d bytes, %v", len(all), err)
			}
			failed := uint64(0)
			if test.fails {
				failed = 1
			}
			gomega.NewWithT(t).Eventually(e.proxy.Metrics.Refused.Value).WithTimeout(hang.Guard).Should(gomega.Equal(failed))
			if used := memory.Used(); used != 900<<10 {
				t.Errorf("%d bytes are taken", used)
			}
		})
	}
}

// An answer beyond the limit passes unread, if the proxy needs to read it only for handles.
func TestAnswerTooLargeToBind(t *testing.T) {
	t.Parallel()
	begin, end := large(`"requestState":"s"`)
	server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", typeJSON)
		w.Header().Set("Content-Length", strconv.Itoa(len(begin+end)))
		_, _ = io.WriteString(w, begin+end)
	})
	e := newVerified(t, server, nil)
	for _, most := range []int{len(begin + end), len(begin+end) - 1} {
		e.proxy.MessageBytes = most
		got := text(t, e.Do(http.MethodPost, callTool))
		if whole := got == begin+end; whole != (most < len(begin+end)) || !whole && !strings.HasSuffix(got, `.s"}}`) {
			t.Errorf("with a limit of %d bytes, alice gets %d of %d", most, len(got), len(begin+end))
		}
	}
}

// A broken answer is not taken for a whole one.
func TestBrokenAnswersOfVerifiedCallers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"JSON":            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"jso\r\n",
		"length not kept": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
	} {
		e := newVerified(t, script(answer), nil)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL, strings.NewReader(callTool))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", typeJSON)
		var body []byte
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			body, err = io.ReadAll(response.Body)
			_ = response.Body.Close()
		}
		if err == nil {
			t.Errorf("%s: alice gets %q as a whole", name, body)
		}
	}
}

package stateless

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless/sessionlesstest"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
	"github.com/slipway-mcp/slipway/test/hang"
)

type script = sessionlesstest.Script

var (
	enveloped = sessionlesstest.Enveloped
	scanned   = sessionlesstest.Scanned
)

// testLimits have no time that a slow machine can reach.
func testLimits() sessionless.Limits {
	return sessionless.Limits{
		Calls: 8, Listens: 4, TargetCalls: 1000, Processes: 1, SendingBytes: 1 << 20, BacklogBytes: 1 << 20, TotalBytes: 4 << 20,
		StartTimeout: time.Hour, Silence: time.Hour, IdleTimeout: time.Hour, StuckTimeout: time.Hour,
	}
}

// testOptions have no time that a slow machine can reach, either.
func testOptions(server *sessionless.Server) Options {
	return Options{Server: server, CallTimeout: time.Hour, CommitAfter: time.Hour, WriteTimeout: time.Hour, KeepAlive: time.Hour}
}

// stage is an endpoint over processes that tests play.
type stage struct {
	*testing.T
	server   *sessionless.Server
	endpoint *Endpoint
	url      string
	started  chan *script
	change   []func(*edge.Options) // of the door
}

// newStage has an endpoint whose processes are modern and have no tools, unless they
// are changed.
func newStage(t *testing.T, change func(*sessionless.Options), play func(*script)) *stage {
	t.Helper()
	s := &stage{T: t, started: make(chan *script, 16)}
	options := sessionless.Options{Limits: testLimits(), Acquire: func(context.Context) (mux.Server, error) {
		p := sessionlesstest.NewModern()
		if play != nil {
			play(p)
		}
		s.started <- p
		return p, nil
	}}
	if change != nil {
		change(&options)
	}
	s.server = sessionless.New(options)
	s.endpoint = New(testOptions(s.server))
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	s.url = server.URL
	t.Cleanup(func() {
		s.server.Close()
		server.Close()
	})
	return s
}

// serve does what the edge does before.
func (s *stage) serve(w http.ResponseWriter, r *http.Request) {
	r.Header.Set("Content-Type", front.TypeJSON)
	edgetest.At(edge.Route{Serve: s.endpoint.Serve}, s.change...).ServeHTTP(w, r)
}

func (s *stage) process() *script {
	s.Helper()
	return sessionlesstest.Process(s.T, s.started)
}

// headers are those that a request should have, by its body, and then others.
func headers(request session.Message, others ...string) http.Header {
	header := http.Header{}
	header.Set("MCP-Protocol-Version", string(request.Envelope.ProtocolVersion))
	header.Set("Mcp-Method", string(request.Envelope.Method))
	if name, _ := rpc.NameOf(request.Bytes, &request.Envelope); name != nil {
		header.Set("Mcp-Name", string(name))
	}
	for i := 0; i < len(others); i += 2 {
		header.Del(others[i])
		if others[i+1] != "" {
			header.Set(others[i], others[i+1])
		}
	}
	return header
}

// posted is a request that a client has sent.
type posted struct {
	stage  *stage
	done   chan struct{}
	answer *http.Response
	err    error
	leave  context.CancelFunc
}

// post sends a message with the headers that it should have, and others.
func (s *stage) post(body string, others ...string) *posted {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	request.Header = headers(scanned(body), others...)
	p := &posted{stage: s, done: make(chan struct{}), leave: cancel}
	go func() {
		defer close(p.done)
		p.answer, p.err = http.DefaultClient.Do(request)
	}()
	s.Cleanup(func() {
		cancel()
		<-p.done
		if p.err == nil {
			_ = p.answer.Body.Close()
		}
	})
	return p
}

// response waits for the headers of the answer.
func (p *posted) response() *http.Response {
	p.stage.Helper()
	select {
	case <-p.done:
	case <-time.After(hang.Guard):
		p.stage.Fatal("no answer")
	}
	if p.err != nil {
		p.stage.Fatal(p.err)
	}
	return p.answer
}

// want waits for all of the answer.
func (p *posted) want(status int, parts ...string) string {
	p.stage.Helper()
	response := p.response()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.stage.Fatal(err)
	}
	for _, part := range parts {
		if !strings.Contains(string(body), part) {
			p.stage.Errorf("got %s, want %s in it", body, part)
		}
	}
	if response.StatusCode != status {
		p.stage.Errorf("got %s, want %d: %s", response.Status, status, body)
	}
	return string(body)
}

// event reads the next event of a stream, and returns its data.
func (p *posted) event() string {
	p.stage.Helper()
	found := make(chan string, 1)
	go func() {
		var text []byte
		one := make([]byte, 1)
		for !bytes.HasSuffix(text, []byte("\n\n")) {
			if n, err := p.answer.Body.Read(one); n == 0 && err != nil {
				break
			}
			text = append(text, one...)
		}
		found <- string(text)
	}()
	select {
	case text := <-found:
		data, ok := strings.CutPrefix(text, "event: message\ndata: ")
		if !ok {
			p.stage.Errorf("got %q, want an event", text)
		}
		return strings.TrimSuffix(data, "\n\n")
	case <-time.After(hang.Guard):
		p.stage.Fatal("no event")
		return ""
	}
}

func (s *stage) equal(what, got, want string) {
	s.Helper()
	if got != want {
		s.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// noTools are Tools of which no header repeats arguments.
type noTools struct{}

func (noTools) Params(context.Context, session.Message, toolindex.Age) []paramheader.Param {
	return nil
}

package stateless

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// testLimits have no time that a slow machine can reach.
func testLimits() Limits {
	return Limits{
		Calls: 8, Listens: 4, Crowd: 1000, Processes: 1, SendingBytes: 1 << 20, BacklogBytes: 1 << 20, TotalBytes: 4 << 20,
		StartTimeout: time.Hour, Silence: time.Hour, CallTimeout: time.Hour, IdleTimeout: time.Hour, StuckTimeout: time.Hour, CommitAfter: time.Hour,
		WriteTimeout: time.Hour, KeepAlive: time.Hour,
	}
}

// script is a process that a test plays. It answers by itself what begins with the
// given methods.
type script struct {
	answers map[string]string // what follows the id, by method
	sent    chan session.Message
	receive func(session.Message)
	ended   func(error)
	once    sync.Once
	closed  chan struct{}
}

var errClosedByTest = errors.New("closed")

func (s *script) Send(_ context.Context, sent session.Message) error {
	text := sent.Bytes
	e, err := rpc.Scan(text)
	if err != nil {
		return err // S-04
	}
	if answer, ok := s.answers[string(e.Method)]; ok {
		if answer != "" {
			go s.emit(`{"jsonrpc":"2.0","id":` + string(e.ID.Of(text)) + `,` + answer + `}`)
		}
		return nil
	}
	s.sent <- session.Message{Bytes: bytes.Clone(text), Envelope: e}
	return nil
}

func (s *script) Close() { s.end(errClosedByTest) }

// end has the process end, which its reader notices.
func (s *script) end(reason error) {
	s.once.Do(func() {
		close(s.closed)
		go s.ended(reason)
	})
}

func (s *script) Serve(receive func(session.Message), ended func(error)) {
	s.receive, s.ended = receive, ended
}

// emit has the process write a message.
func (s *script) emit(text string) {
	e, err := rpc.ScanLenient([]byte(text))
	if err != nil {
		panic(text + ": " + err.Error())
	}
	s.receive(session.Message{Bytes: []byte(text), Envelope: e})
}

// next is what the process was sent.
func (s *script) next(t *testing.T) session.Message {
	t.Helper()
	select {
	case message := <-s.sent:
		return message
	case <-time.After(hang.Guard):
		t.Fatal("the process is sent nothing")
		return session.Message{}
	}
}

// answer has the process answer a request with what follows the id.
func (s *script) answer(request session.Message, rest string) {
	s.emit(`{"jsonrpc":"2.0","id":` + string(request.Envelope.ID.Of(request.Bytes)) + `,` + rest + `}`)
}

const (
	modernDiscovery = `"result":{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}`
	noTools         = `"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}`
)

// stage is an endpoint over processes that tests play.
type stage struct {
	*testing.T
	endpoint *Endpoint
	url      string
	started  chan *script
	standIn  *script // for servers with sessions; made by the first start that needs it
}

func newScript(answers map[string]string) *script {
	return &script{sent: make(chan session.Message, 1024), closed: make(chan struct{}), answers: answers}
}

// translate gives the endpoint what stands in for servers with sessions.
func (s *stage) translate() Translator {
	s.standIn = newScript(nil)
	return standIn(s.standIn)
}

// translator is a Translator whose other side a test plays: a script that knows each request by
// a number.
type translator struct {
	mux.Conn[Recipient]
	server mux.Server
	mu     sync.Mutex
	number map[Recipient]uint64
}

func standIn(server mux.Server) Translator {
	s := &translator{server: server, number: map[Recipient]uint64{}}
	s.Init(server, &s.mu, mux.Options{Fail: func(error) {}})
	s.Serve(s.receive, func(error) {})
	return s
}

func (s *translator) Call(ctx context.Context, request session.Message, to Recipient) error {
	s.mu.Lock()
	number := s.NumberLocked()
	s.AddLocked(number, to)
	s.number[to] = number
	s.mu.Unlock()
	return s.server.Send(ctx, session.Message{
		Bytes: rpc.Edited(request.Bytes, rpc.Edit{Span: request.Envelope.ID, With: strconv.AppendUint(nil, number, 10)}), From: request.From,
	})
}

func (s *translator) Abandon(to Recipient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.CancelLocked(s.number[to], "the client has gone")
}

func (s *translator) AwaitParked(context.Context) {}
func (s *translator) Close()                      { s.server.Close() }

// receive gives a recipient its answer, or a message that names it as its call.
func (s *translator) receive(m session.Message) {
	at, text := m.Envelope.ID, m.Bytes
	if m.Call != nil {
		at, text = rpc.Span{End: len(m.Call)}, m.Call
	}
	s.mu.Lock()
	to, _, ok := s.FindLocked(text, at)
	s.mu.Unlock()
	switch {
	case !ok:
	case m.Call != nil:
		to.Notify(m.Bytes)
	default:
		to.Answer(rpc.Edited(m.Bytes, rpc.Edit{Span: m.Envelope.ID, With: to.ID()}), rpc.ErrorCode(m.Bytes, &m.Envelope), rpc.ErrorType(m.Bytes, &m.Envelope, false))
	}
}

// newStage has an endpoint whose processes are modern and have no tools, unless they
// are changed.
func newStage(t *testing.T, change func(*Options), play func(*script)) *stage {
	t.Helper()
	s := &stage{T: t, started: make(chan *script, 16)}
	options := Options{Limits: testLimits(), Translate: s.translate, Acquire: func(context.Context) (mux.Server, error) {
		p := newScript(map[string]string{"server/discover": modernDiscovery, "tools/list": noTools})
		if play != nil {
			play(p)
		}
		s.started <- p
		return p, nil
	}}
	if change != nil {
		change(&options)
	}
	s.endpoint = New(options)
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	s.url = server.URL
	t.Cleanup(func() {
		s.endpoint.Close()
		server.Close()
	})
	return s
}

// serve does what the front end does before.
func (s *stage) serve(w http.ResponseWriter, r *http.Request) {
	r.Header.Set("Content-Type", front.TypeJSON)
	edgetest.At(edge.Route{Serve: s.endpoint.Serve}).ServeHTTP(w, r)
}

func (s *stage) process() *script {
	s.Helper()
	select {
	case p := <-s.started:
		return p
	case <-time.After(hang.Guard):
		s.Fatal("no process is started")
		return nil
	}
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
	request.Header = headers(scanned(s.T, body), others...)
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

// await waits for a condition.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(hang.Guard); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

var numbers = regexp.MustCompile(`"id":\d+`)

// unnumbered hides our own numbers.
func unnumbered(message session.Message) string {
	return numbers.ReplaceAllString(string(message.Bytes), `"id":N`)
}

package tomodern

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

func testLimits() Limits {
	return Limits{
		Memory:   budget.New(64<<20, 1),
		Children: 4, PerKey: 3, KeysPerPrincipal: 2, URIs: 4,
		StartTimeout: 10 * time.Second, AcquireTimeout: 5 * time.Second, IdleTimeout: 5 * time.Minute,
		ParkTTL: 10 * time.Minute, StuckTimeout: 10 * time.Second, CancelGrace: 10 * time.Second,
	}
}

const everything = `"result":{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"tools":{"listChanged":true},"prompts":{"listChanged":true},` +
	`"resources":{"listChanged":true,"subscribe":true}},"serverInfo":{"name":"old","version":"1.0"},"instructions":"Be \"kind\"."}`

const info = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"old","version":"1.0"}}`

// script is a process with sessions that a test plays. It answers by itself what has an
// answer here.
type script struct {
	t       testing.TB
	answers map[string]string           // what follows the id, by method; nothing at all if empty
	refuse  func(session.Message) error // says what becomes of a message, if it is set
	receive func(session.Message)
	ended   func(error)
	stream  chan struct{} // closed when its notifications have a stream; nil if they need none

	mu     sync.Mutex
	sent   []session.Message // and not taken
	closed bool
}

// errTaken is for a message that needs nothing more.
var errTaken = errors.New("taken")

var errPlayed = errors.New("the process ended as the test wants it to")

func (p *script) Send(_ context.Context, sent session.Message) error {
	text := sent.Bytes
	text = bytes.Clone(text)
	e, err := rpc.Scan(text)
	if err != nil {
		p.t.Errorf("the process is sent %s: %v", text, err)
		return nil
	}
	if p.refuse != nil {
		if err := p.refuse(session.Message{Bytes: text, Envelope: e}); err != nil {
			if errors.Is(err, errTaken) {
				err = nil
			}
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errPlayed
	}
	if answer, ok := p.answers[string(e.Method)]; ok && e.Method != nil {
		if answer != "" {
			go p.emit(`{"jsonrpc":"2.0","id":` + string(e.ID.Of(text)) + `,` + answer + `}`)
		}
		return nil
	}
	p.sent = append(p.sent, session.Message{Bytes: text, Envelope: e})
	return nil
}

func (p *script) Serve(receive func(session.Message), ended func(error)) {
	p.receive, p.ended = receive, ended
}

func (p *script) Close() { p.end(errPlayed) }

// AwaitStream is what connections with HTTP servers have.
func (p *script) AwaitStream(ctx context.Context) {
	if p.stream == nil {
		return
	}
	select {
	case <-p.stream:
	case <-ctx.Done():
	}
}

func (p *script) end(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		go p.ended(reason)
	}
}

func (p *script) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// emit has the process write a message, which is overwritten as soon as it was read.
func (p *script) emit(text string) {
	b := []byte(text)
	e, err := rpc.ScanLenient(b)
	if err != nil {
		panic(text + ": " + err.Error())
	}
	p.receive(session.Message{Bytes: b, Envelope: e})
	for i := range b {
		b[i] = '?'
	}
}

// next is what the process was sent next.
func (p *script) next() session.Message {
	p.t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.sent) == 0 {
		p.t.Fatal("the process is sent nothing")
	}
	m := p.sent[0]
	p.sent = p.sent[1:]
	return m
}

// expect is next with a look at it. Our numbers are hidden.
func (p *script) expect(want string) session.Message {
	p.t.Helper()
	m := p.next()
	if got := unnumbered(string(m.Bytes)); got != want {
		p.t.Errorf("the process is sent\n     %s\nwant %s", got, want)
	}
	return m
}

func (p *script) expectNothing() {
	p.t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.sent {
		p.t.Errorf("the process is sent %s", m.Bytes)
	}
}

// answer has the process answer a request with what follows the id.
func (p *script) answer(request session.Message, rest string) {
	p.emit(`{"jsonrpc":"2.0","id":` + string(request.Envelope.ID.Of(request.Bytes)) + `,` + rest + `}`)
	synctest.Wait()
}

// stage is a server over processes that a test plays.
type stage struct {
	testing.TB
	server *Server

	mu      sync.Mutex
	started []*script
	got     map[string][]string // what clients were sent, by id, token or subscription
	last    int
}

// play runs a test in a bubble of its own.
func play(t *testing.T, change func(*Options), script func(*script), test func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, change, script)
		test(s)
		s.server.Close()
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, p := range s.started {
			if !p.isClosed() {
				t.Error("a process is left")
			}
		}
		s.empty()
	})
}

// empty checks that the server keeps nothing.
func (s *stage) empty() {
	s.Helper()
	v := s.server
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.calls)+len(v.parked)+len(v.listens)+len(v.groups)+v.children+v.waiters+int(v.kept.Held()) != 0 {
		s.Errorf("left are %d calls, %d parked, %d listens, %d groups, %d children, %d waiters, %d bytes",
			len(v.calls), len(v.parked), len(v.listens), len(v.groups), v.children, v.waiters, v.kept.Held())
	}
}

func newStage(t testing.TB, change func(*Options), played func(*script)) *stage {
	t.Helper()
	s := &stage{TB: t, got: map[string][]string{}, last: 100}
	options := Options{Limits: testLimits(), Serves: serves, Acquire: func(context.Context, *caller.Caller) (mux.Server, error) {
		p := &script{t: t, answers: map[string]string{"initialize": everything, "notifications/initialized": "", "ping": `"result":{}`}}
		if played != nil {
			played(p)
		}
		s.mu.Lock()
		s.started = append(s.started, p)
		s.mu.Unlock()
		return p, nil
	}}
	if change != nil {
		change(&options)
	}
	s.server = New(options)
	return s
}

// ID is the request's.
func (p *posted) ID() []byte { return []byte(p.id) }

// Token is the request's.
func (p *posted) Token() []byte { return p.token }

// Notify takes a notification. It has to be valid, and to say whose it is.
func (p *posted) Notify(message []byte) {
	e := p.take(message)
	for _, at := range []rpc.Span{e.SubscriptionID, e.ProgressToken} {
		if at.Present() && string(at.Of(message)) != p.id {
			p.stage.Errorf("%s got another's message: %s", p.id, message)
		}
	}
}

// Answer takes the answer. It has to be valid, and to match the code and the failure.
func (p *posted) Answer(message []byte, code int, failed string) {
	e := p.take(message)
	if string(e.ID.Of(message)) != p.id {
		p.stage.Errorf("%s got another's answer: %s", p.id, message)
	}
	var read struct {
		Error struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(message, &read); err != nil || read.Error.Code != code {
		p.stage.Errorf("code %d, %v: %s", code, err, message)
	}
	if want := rpc.ErrorType(message, &e, p.method == rpc.MethodCallTool); failed != want {
		p.stage.Errorf("failed by %q, want %q: %s", failed, want, message)
	}
}

func (p *posted) take(message []byte) rpc.Envelope {
	e, err := rpc.ScanLenient(message)
	if err != nil {
		p.stage.Errorf("%s got %q: %v", p.id, message, err)
	}
	p.stage.mu.Lock()
	defer p.stage.mu.Unlock()
	p.stage.got[p.id] = append(p.stage.got[p.id], string(message))
	return e
}

// process is the one that was started as the n-th.
func (s *stage) process(n int) *script {
	s.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.started) < n {
		s.Fatalf("%d processes were started, want %d", len(s.started), n)
	}
	return s.started[n-1]
}

func (s *stage) processes(want int) {
	s.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.started) != want {
		s.Errorf("%d processes were started, want %d", len(s.started), want)
	}
}

// posted is a client's request.
type posted struct {
	stage  *stage
	id     string
	method string
	token  []byte
	err    error
	done   chan struct{}
	leave  context.CancelFunc
}

// client is how requests are made.
type client struct {
	principal, capabilities, meta string
	address                       string // one for each principal unless it is set
}

var (
	mute    = client{capabilities: `{}`}
	elicits = client{capabilities: `{"elicitation":{}}`}
	able    = client{capabilities: `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`}
)

// post makes a request, whose params end with a comma.
func (s *stage) post(c client, method, params string) *posted {
	s.Helper()
	s.mu.Lock()
	s.last++
	p := &posted{stage: s, id: strconv.Itoa(s.last), method: method, done: make(chan struct{})}
	s.mu.Unlock()
	text := `{"jsonrpc":"2.0","id":` + p.id + `,"method":"` + method + `","params":{` + params + `"_meta":{` + c.meta +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + c.capabilities + `}}}`
	text = strings.ReplaceAll(text, "TOKEN", p.id)
	from := &caller.Caller{
		Principal: caller.Principal(c.principal), Authorization: []string{"of " + c.principal},
		Address: cmp.Or(c.address, "of "+c.principal),
	}
	e, err := rpc.Scan([]byte(text))
	if err != nil {
		s.Fatal(err)
	}
	if token := e.ProgressToken.Of([]byte(text)); string(token) != "null" {
		p.token = token
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.leave = cancel
	go func() {
		defer close(p.done)
		p.err = s.server.Call(ctx, session.Message{Bytes: []byte(text), Envelope: e, From: from}, p)
	}()
	return p
}

// abandon is the client that goes away once its request was taken.
func (p *posted) abandon() {
	p.stage.server.Abandon(p)
	synctest.Wait()
}

func (p *posted) got() []string {
	synctest.Wait()
	p.stage.mu.Lock()
	defer p.stage.mu.Unlock()
	return p.stage.got[p.id]
}

// want waits for all that the client is sent. ID stands for the request's.
func (p *posted) want(messages ...string) {
	p.stage.Helper()
	got := p.got()
	for i := range max(len(got), len(messages)) {
		switch {
		case i >= len(messages):
			p.stage.Errorf("%s got %s too", p.id, got[i])
		case i >= len(got):
			p.stage.Errorf("%s did not get %s", p.id, messages[i])
		default:
			if want := strings.ReplaceAll(messages[i], "ID", p.id); got[i] != want {
				p.stage.Errorf("%s got\n     %s\nwant %s", p.id, got[i], want)
			}
		}
	}
}

// wantPart is want of one message with such a part.
func (p *posted) wantPart(part string) string {
	p.stage.Helper()
	got := p.got()
	if len(got) != 1 || !strings.Contains(got[0], part) {
		p.stage.Errorf("%s got %q, want one with %s", p.id, got, part)
		return ""
	}
	return got[0]
}

func (p *posted) wantNothing() {
	p.stage.Helper()
	if got := p.got(); len(got) != 0 {
		p.stage.Errorf("%s got %q", p.id, got)
	}
}

// wantBusy waits for the request to be refused.
func (p *posted) wantBusy() {
	p.stage.Helper()
	<-p.done
	if !errors.Is(p.err, fault.ErrBusy) {
		p.stage.Errorf("got error %v, want it to be busy", p.err)
	}
	p.wantNothing()
}

func result(rest string) string { return `{"jsonrpc":"2.0","id":ID,"result":{` + rest + `}}` }

func failure(code int, message string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":ID,"error":{"code":%d,"message":"%s"}}`, code, message)
}

var numbers = regexp.MustCompile(`"(id|requestId|progressToken)":\d+`)

// unnumbered hides our own numbers, which answers have none of.
func unnumbered(text string) string {
	if !strings.Contains(text, `"method":`) {
		return text
	}
	return numbers.ReplaceAllString(text, `"$1":N`)
}

func equal(t testing.TB, what string, got, want uint64) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %d, want %d", what, got, want)
	}
}

// serves says that clients can use the revision without sessions and the one spoken.
func serves(spoken string) []string { return []string{"2026-07-28", spoken} }

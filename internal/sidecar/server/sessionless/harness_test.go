package sessionless

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless/sessionlesstest"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

type script = sessionlesstest.Script

var (
	newScript = sessionlesstest.New
	enveloped = sessionlesstest.Enveloped
	scanned   = sessionlesstest.Scanned
	await     = sessionlesstest.Await
)

// testLimits have no time that a slow machine can reach.
func testLimits() Limits {
	return Limits{
		Calls: 8, Listens: 4, TargetCalls: 1000, Processes: 1, SendingBytes: 1 << 20, BacklogBytes: 1 << 20, TotalBytes: 4 << 20,
		StartTimeout: time.Hour, Silence: time.Hour, IdleTimeout: time.Hour, StuckTimeout: time.Hour,
	}
}

// stage is a server over processes that tests play.
type stage struct {
	*testing.T
	server  *Server
	started chan *script
	standIn *script // for servers with sessions; made by the first start that needs it
}

// translate gives the server what stands in for servers with sessions.
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

func (s *translator) Refuse()                     {}
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

// newStage has a server whose processes are modern and have no tools, unless they
// are changed.
func newStage(t *testing.T, change func(*Options), play func(*script)) *stage {
	t.Helper()
	s := &stage{T: t, started: make(chan *script, 16)}
	options := Options{Limits: testLimits(), Translate: s.translate, Acquire: func(context.Context) (mux.Server, error) {
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
	s.server = New(options)
	t.Cleanup(s.server.Close)
	return s
}

func (s *stage) process() *script {
	s.Helper()
	return sessionlesstest.Process(s.T, s.started)
}

// posted is a request that a client has sent, and whose messages it reads.
type posted struct {
	stage    *stage
	id       []byte
	messages chan string // closed after the last one, or when the client has gone
	err      error       // why the server has not taken it; set when messages is closed
	leave    context.CancelFunc
}

// admitted is an Admission that refuses nothing.
type admitted struct{}

func (admitted) Admit(context.Context, Tools) error { return nil }

// post makes a request of a client with no token.
func (s *stage) post(body string) *posted {
	return s.postBy(&caller.Caller{Address: "127.0.0.1"}, admitted{}, body)
}

func (s *stage) postBy(from *caller.Caller, admission Admission, body string) *posted {
	ctx, cancel := context.WithCancel(s.Context())
	request := scanned(body)
	request.From = from
	p := &posted{stage: s, id: request.Envelope.ID.Of(request.Bytes), messages: make(chan string, 1024), leave: cancel}
	go p.run(ctx, request, admission)
	s.Cleanup(func() {
		cancel()
		for range p.messages { // until it is closed
		}
	})
	return p
}

func (p *posted) run(ctx context.Context, request session.Message, admission Admission) {
	defer close(p.messages)
	call, err := p.stage.server.Serve(ctx, request, admission)
	if err != nil {
		p.err = err
		return
	}
	defer call.Release()
	for {
		next, err := call.awaitNext(ctx)
		if err != nil {
			return
		}
		p.messages <- string(next.Message)
		if next.Last {
			return
		}
	}
}

// event is the next message.
func (p *posted) event() string {
	p.stage.Helper()
	select {
	case text, ok := <-p.messages:
		if !ok {
			p.stage.Errorf("got no more messages: %v", p.err)
		}
		return text
	case <-time.After(hang.Guard):
		p.stage.Fatal("no message")
		return ""
	}
}

// all waits for all messages.
func (p *posted) all() (text string) {
	p.stage.Helper()
	for {
		select {
		case message, ok := <-p.messages:
			if !ok {
				return text
			}
			text += message
		case <-time.After(hang.Guard):
			p.stage.Fatal("no answer")
		}
	}
}

// want waits for all messages.
func (p *posted) want(parts ...string) string {
	p.stage.Helper()
	text := p.all()
	if p.err != nil {
		p.stage.Errorf("got error %v, want %s", p.err, parts)
	}
	p.contains(text, parts)
	return text
}

// wantError waits for the server not to take the request.
func (p *posted) wantError(parts ...string) {
	p.stage.Helper()
	if text := p.all(); p.err == nil {
		p.stage.Errorf("got %s, want an error", text)
		return
	}
	p.contains(p.err.Error(), parts)
}

func (p *posted) contains(text string, parts []string) {
	p.stage.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			p.stage.Errorf("got %s, want %s in it", text, part)
		}
	}
}

func (s *stage) equal(what, got, want string) {
	s.Helper()
	if got != want {
		s.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// isRunning says whether there is something that serves clients.
func (s *stage) isRunning() bool {
	_, ok := s.server.primary.Current()
	return ok
}

// current is the process that serves all clients.
func (s *Server) current() *process {
	running, _ := s.primary.Current()
	return running
}

// ask makes a request, and returns its answer, or why there is none.
func ask(ctx context.Context, s *Server, id string) string {
	request := scanned(enveloped(id, "some/method", ""))
	request.From = &caller.Caller{}
	call, err := s.Serve(ctx, request, admitted{})
	if err != nil {
		return err.Error()
	}
	defer call.Release()
	answer, err := call.awaitNext(ctx)
	if err != nil {
		return err.Error()
	}
	return string(answer.Message)
}

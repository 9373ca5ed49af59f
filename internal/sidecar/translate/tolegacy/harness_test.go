package tolegacy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

const (
	r24 = front.Revision20241105
	r03 = front.Revision20250326
	r06 = front.Revision20250618
	r11 = front.Revision20251125
)

// script is a modern server that says what the test has it say.
type script struct {
	mu       sync.Mutex
	requests []*scripted
	refuses  error // instead of taking a request
}

func (m *script) Call(ctx context.Context, request session.Message) (Exchange, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuses != nil {
		return nil, m.refuses
	}
	x := &scripted{ctx: ctx, from: request.From, request: string(request.Bytes), envelope: request.Envelope, ready: make(chan struct{}, 1)}
	m.requests = append(m.requests, x)
	return x, nil
}

// refuse has it take no requests, or take them again.
func (m *script) refuse(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuses = err
}

// scripted is one request to a script.
type scripted struct {
	ctx      context.Context
	from     *caller.Caller
	request  string
	envelope rpc.Envelope
	ready    chan struct{}

	mu       sync.Mutex
	inbox    []string
	last     bool // the last in the inbox is the answer
	released int
	answered bool
	gone     func() // is told of the release
}

func (x *scripted) Take() (message []byte, last, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.inbox) == 0 {
		return nil, false, false
	}
	message = []byte(x.inbox[0])
	x.inbox = x.inbox[1:]
	return message, x.last && len(x.inbox) == 0, true
}

func (x *scripted) Ready() <-chan struct{} { return x.ready }

func (x *scripted) Release() {
	x.mu.Lock()
	x.released++
	gone := x.gone
	x.mu.Unlock()
	if gone != nil {
		gone()
	}
}

// cancelled says whether the adapter released the request without an answer.
func (x *scripted) cancelled() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.released > 0 && !x.answered
}

// say has the server say something before the answer, all at once.
func (x *scripted) say(messages ...string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inbox = append(x.inbox, messages...)
	x.signal()
}

func (x *scripted) signal() {
	select {
	case x.ready <- struct{}{}:
	default:
	}
}

// answer has the server answer, with a result or an error.
func (x *scripted) answer(with string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inbox = append(x.inbox, `{"jsonrpc":"2.0","id":`+string(x.envelope.ID.Of([]byte(x.request)))+`,`+with+`}`)
	x.last, x.answered = true, true
	x.signal()
}

// agree has the server agree to a subscription.
func (x *scripted) agree(filter string, andSay ...string) {
	x.say(append([]string{`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"slipway"},"notifications":` + filter + `}}`}, andSay...)...)
}

// announce has the server announce a change on a subscription.
func (x *scripted) announce(method, params string) { x.say(announcement(method, params)) }

func announcement(method, params string) string {
	return `{"jsonrpc":"2.0","method":"` + method + `","params":{` + params + `"_meta":{"io.modelcontextprotocol/subscriptionId":"slipway"}}}`
}

// stage has a Server between a scripted modern one and a client that only notes what it
// is told. All of it lives in one bubble.
type stage struct {
	t      *testing.T
	server *Server
	modern *script
	seen   int // requests to it that the test knows of

	mu    sync.Mutex
	told  []session.Message
	ended []error
}

func testLimits() Limits {
	return Limits{
		Rounds: 3, Questions: 3, Retries: 2, Subscriptions: 2,
		RoundTimeout: time.Minute, RetryDelay: time.Second, ListenTimeout: 5 * time.Second,
	}
}

// staged runs a test in a bubble.
func staged(t *testing.T, test func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, modern: &script{}}
		s.server = New(Options{Modern: s.modern, Limits: testLimits(), Metrics: &Metrics{}})
		s.server.Serve(func(message session.Message) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.told = append(s.told, message)
		}, func(reason error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ended = append(s.ended, reason)
		})
		test(s)
		s.server.Close()
		synctest.Wait()
		s.modern.mu.Lock()
		defer s.modern.mu.Unlock()
		for _, x := range s.modern.requests {
			if x.released != 1 {
				t.Errorf("released %d times, want once: %s", x.released, x.request)
			}
		}
	})
}

// send sends a message of the client's, of which nothing may be kept.
func (s *stage) send(message string) {
	s.t.Helper()
	s.sendFor(s.t.Context(), "", message)
}

// sendFor is send for a principal. Of its caller nothing may be kept either.
func (s *stage) sendFor(ctx context.Context, principal caller.Principal, message string) {
	s.t.Helper()
	text, from := []byte(message), caller.Caller{Principal: principal}
	if err := s.server.Send(ctx, session.Message{Bytes: text, From: &from}); err != nil {
		s.t.Fatalf("send %s: %v", message, err)
	}
	clear(text)
	from = caller.Caller{Principal: "of another request"}
}

// heard are the messages that the client was told since it was last asked, one by one.
func (s *stage) heard() []string {
	var texts []string
	for _, message := range s.heardAll() {
		texts = append(texts, string(message.Bytes))
	}
	return texts
}

func (s *stage) heardAll() []session.Message {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.told
	s.told = nil
	for _, message := range told {
		if e, err := rpc.ScanLenient(append([]byte(nil), message.Bytes...)); err != nil || e.Kind != message.Envelope.Kind ||
			string(e.ID.Of(message.Bytes)) != string(message.Envelope.ID.Of(message.Bytes)) || e.Result != message.Envelope.Result {
			s.t.Errorf("the envelope is not that of the message: %s", message.Bytes)
		}
	}
	return told
}

// endedBy is why the session ended, if it has.
func (s *stage) endedBy() []error {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// want compares what the client was told with what it should have been.
func (s *stage) want(messages ...string) {
	s.t.Helper()
	if diff := cmp.Diff(messages, s.heard()); diff != "" {
		s.t.Errorf("the client is told (-want +got):\n%s", diff)
	}
}

// wantIn is want by parts of messages.
func (s *stage) wantIn(parts ...[]string) []string {
	s.t.Helper()
	got := s.heard()
	if len(got) != len(parts) {
		s.t.Fatalf("the client is told %d messages, want %d: %s", len(got), len(parts), got)
	}
	for i, all := range parts {
		for _, part := range all {
			if !strings.Contains(got[i], part) {
				s.t.Errorf("the client is told %s, want %s in it", got[i], part)
			}
		}
	}
	return got
}

// next is the next request that the modern server is made.
func (s *stage) next() *scripted {
	s.t.Helper()
	synctest.Wait()
	s.modern.mu.Lock()
	defer s.modern.mu.Unlock()
	if s.seen == len(s.modern.requests) {
		s.t.Fatal("the modern server is asked for nothing")
	}
	s.seen++
	return s.modern.requests[s.seen-1]
}

// wantIdle fails if the modern server is asked for anything.
func (s *stage) wantIdle() {
	s.t.Helper()
	synctest.Wait()
	s.modern.mu.Lock()
	defer s.modern.mu.Unlock()
	if s.seen < len(s.modern.requests) {
		s.t.Errorf("the modern server is asked for %s", s.modern.requests[s.seen].request)
	}
}

// discovered is what the modern server says of itself, if it is not important.
const discovered = `"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`

func initialize(revision, capabilities string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"%s","capabilities":%s,"clientInfo":{"name":"c","version":"1"}}}`, revision, capabilities)
}

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// meet opens the session.
func (s *stage) meet(revision, capabilities, discovered string) {
	s.t.Helper()
	s.send(initialize(revision, capabilities))
	s.next().answer(discovered)
	s.wantIn([]string{`"id":0,"result":{"protocolVersion":"` + revision + `"`})
}

// meetAll is meet with a client that can do everything.
func (s *stage) meetAll() {
	s.t.Helper()
	s.meet(r11, `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}`, discovered)
}

// envelope is _meta as the modern server gets it, of a client with these capabilities.
func envelope(capabilities string) string {
	return `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":` + capabilities
}

// equal compares one text with what it should be.
func (s *stage) equal(what, got, want string) {
	s.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

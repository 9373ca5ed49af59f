// Package tolegacy makes a server with sessions of one that has none: it lets clients of the
// revisions 2024-11-05 to 2025-11-25 use a server that speaks 2026-07-28 only.
//
// The translation lies between a session and its server. To the session, a Server looks like
// a process that speaks the older revisions. The Server keeps what belongs to a session there:
// who the client is, what it can do, which log level it wants, and what it is subscribed to.
// The modern server, which all sessions share, is told with every request. It is given as an
// interface, Modern.
//
//   - The adapter answers initialize with what server/discover says (initialize.go).
//   - A request gets an envelope, and its result loses what older clients do not know
//     (request.go, result.go, downlevel.go). Both happen by splicing: every other byte passes
//     as it is.
//   - A result that asks for input becomes requests to the client, and their answers become
//     another request to the server (inputrequired.go, inputrequests.go).
//   - Subscriptions become one subscriptions/listen for the session, which the adapter replaces
//     when they change (listener.go, subscription.go).
//
// Errors: Send returns one if the bytes are not a message, if the modern server did not take
// the message, or if the Server is closed. Every other failure is an answer to the request that
// it is about. The session outlives the modern server's process.
package tolegacy

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// Limits bound what a client and the modern server can do in one session. The session
// bounds the calls in flight.
type Limits struct {
	Rounds        int // of input requests that one call may take
	Questions     int // input requests in one round
	Retries       int // of a call that the server wants repeated without any input
	Subscriptions int // resources that the session is subscribed to

	RoundTimeout  time.Duration // for the client to answer the input requests of one round
	RetryDelay    time.Duration // before a call is repeated for the first time; it doubles
	ListenTimeout time.Duration // for the server to acknowledge a subscription
}

// DefaultLimits are the limits of production.
func DefaultLimits() Limits {
	return Limits{
		Rounds: 8, Questions: 32, Retries: 3, Subscriptions: 256,
		RoundTimeout: 10 * time.Minute, RetryDelay: time.Second, ListenTimeout: 10 * time.Second,
	}
}

// Metrics are counted over all sessions that share them.
type Metrics struct {
	Rounds               session.Counter // of input requests that clients got
	QuestionTimeouts     session.Counter // rounds that clients did not answer in time
	StoppedCalls         session.Counter // calls that ended because input was missing, or because of a limit
	Retries              session.Counter // calls that the adapter repeated because the server wanted it
	BadResults           session.Counter // answers of the server that cannot be understood
	SubscriptionRefusals session.Counter // subscriptions beyond the limit
	LostListens          session.Counter // subscriptions that the server ended
	DroppedMessages      session.Counter // messages of either side that belong to nothing
	Panics               session.Counter // bugs of the adapter, each of which ended a session
}

// Options are the parts and the behavior of a Server.
type Options struct {
	Modern  Modern
	Limits  Limits
	Metrics *Metrics
	Log     logr.Logger
}

// nameBytes bounds an id, a token or a URI that the adapter keeps.
const nameBytes = 8 << 10

// Server is the modern server as one session of an older revision sees it.
type Server struct {
	options Options
	metrics *Metrics
	receive func(session.Message)
	ended   func(error)

	ctx    context.Context // of all work for the session
	cancel context.CancelFunc
	work   sync.WaitGroup // goroutines, and calls that have none yet
	listen *listener

	mu           sync.Mutex
	closed       bool
	initializing bool    // a goroutine answers initialize
	client       *client // nil before initialize was answered; does not change after it
	meta         []byte  // the member _meta of requests of the client
	calls        map[*call]struct{}
	inputs       map[string]*inputRequest // without an answer, by id
	lastInput    uint64                   // number of the newest
}

// New returns a server with a session, made of one that has none.
func New(options Options) *Server {
	s := &Server{options: options, metrics: options.Metrics, calls: map[*call]struct{}{}, inputs: map[string]*inputRequest{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.listen = &listener{server: s, wake: make(chan struct{}, 1), uris: uriSet{}}
	return s
}

// Serve sets the functions that take the server's messages, and the reason for its end. It
// must be called before the first message is sent.
func (s *Server) Serve(receive func(session.Message), ended func(error)) {
	s.receive, s.ended = receive, ended
}

// Close ends all work of the modern server for the session. It returns at once.
func (s *Server) Close() { s.end(session.ErrEnded) }

func (s *Server) end(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.cancel()
	for c := range s.calls {
		s.forgetLocked(c)
	}
	go func() {
		s.work.Wait()
		if s.ended != nil {
			s.ended(reason)
		}
	}()
}

// do starts work that may wait for the client, unless the server is closed.
func (s *Server) do(work func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Add(1)
	go func() {
		defer s.finish()
		work()
	}()
	return true
}

// finish is deferred by every goroutine of the session. It recovers, so that a bug of the
// adapter costs one session and not all of them. A goroutine holds the locks of its own session
// only, and releases them when it panics. A panic in Modern, which all sessions share, ends the
// adapter before it comes here.
func (s *Server) finish() {
	defer s.work.Done()
	if p := recover(); p != nil {
		err := fmt.Errorf("the adapter made a mistake: %v", p)
		s.metrics.Panics.Inc()
		s.options.Log.Error(err, "Ending a session because of a panic", "stack", string(debug.Stack()))
		s.end(err)
	}
}

// Send takes one message of the client. It waits for the modern server to take a request, and
// never for the client.
func (s *Server) Send(ctx context.Context, message session.Message) error {
	message, err := message.Scanned()
	if err != nil {
		return err
	}
	switch message.Envelope.Kind {
	case rpc.Request:
		return s.request(ctx, message)
	case rpc.Response:
		s.takeAnswer(message)
	case rpc.Notification:
		s.notice(message)
	}
	return nil
}

// request answers a request, or passes it on.
func (s *Server) request(ctx context.Context, request session.Message) error {
	e := &request.Envelope
	id := e.ID.Of(request.Bytes)
	if len(id) > nameBytes || e.ProgressToken.End-e.ProgressToken.Start > nameBytes {
		return s.refuse(id, rpc.CodeInvalidRequest, fmt.Sprintf("id and progress token may have %d bytes each", nameBytes))
	}
	method := string(e.Method)
	switch method {
	case "ping":
		return s.reply(id)
	case rpc.MethodInitialize:
		return s.initialize(ctx, request)
	}
	if !s.isReady() {
		return s.refuse(id, rpc.CodeInvalidRequest, "initialize comes first")
	}
	if strings.HasPrefix(method, "tasks/") { // also those of later revisions: the server may take any of them
		return s.refuse(id, rpc.CodeMethodNotFound, "tasks are not available from a server of protocol revision "+front.Revision20260728)
	}
	switch method {
	case "logging/setLevel":
		return s.setLevel(request)
	case "resources/subscribe", "resources/unsubscribe":
		return s.subscribe(request)
	case methodDiscover, subscription.MethodListen:
		return s.refuse(id, rpc.CodeMethodNotFound, "not part of the protocol revision of this session")
	}
	return s.call(ctx, request)
}

// notice takes a notification. The modern server gets none: it learns from requests what a
// notification of an older revision says.
func (s *Server) notice(notification session.Message) {
	switch string(notification.Envelope.Method) {
	case rpc.MethodCancelled:
		s.cancelCall(notification.Envelope.RequestID.Of(notification.Bytes))
	case "notifications/initialized":
		if s.isReady() {
			s.listen.enqueue(change{})
		}
	default:
		s.metrics.DroppedMessages.Inc()
	}
}

// isReady says whether the session is initialized.
func (s *Server) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client != nil
}

// reply answers a request with an empty result.
func (s *Server) reply(id []byte) error {
	return s.deliverSoon(rpc.AppendResult(nil, id, []byte("{}")))
}

func (s *Server) refuse(id []byte, code int, text string) error {
	return s.deliverSoon(rpc.AppendError(nil, id, code, text, nil))
}

// deliverSoon delivers an answer for a function that must not wait for the client. There is
// at most one for each call that the session has in flight.
func (s *Server) deliverSoon(answer []byte) error {
	if !s.do(func() { s.deliver(answer, nil) }) {
		return session.ErrEnded
	}
	return nil
}

// deliver hands the session a message of the adapter, with the call that it belongs to, if
// there is one.
func (s *Server) deliver(message []byte, of *call) {
	m := scanned(message)
	if m.Envelope.Kind == 0 {
		s.metrics.DroppedMessages.Inc() // the part that the modern server wrote is broken
		return
	}
	if of != nil {
		m.Call = of.id()
	}
	s.receive(m)
}

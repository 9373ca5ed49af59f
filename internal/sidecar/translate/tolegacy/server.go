// Package tolegacy makes a server with sessions of one that has none: clients of the
// revisions 2024-11-05 to 2025-11-25 are served by a server that speaks 2026-07-28 only.
//
// The translation lies where a session meets its server. To the session a Server is what
// a process is that speaks the older revisions; what a session is there (who the client
// is, what it can do, which log level it wants, what it is subscribed to) is kept here,
// and the modern server, which all sessions share, is told with every request. It is
// given as an interface, Modern.
//
//   - initialize is answered here, by what server/discover says (hello.go).
//   - A request gets an envelope, and its result loses what older clients do not know
//     (request.go, result.go, downlevel.go). Both happen by splicing: what is not named
//     there passes byte for byte.
//   - A result that asks for input becomes requests to the client, and their answers
//     another round of the call (rounds.go, questions.go).
//   - Subscriptions become one subscriptions/listen for the session, which is replaced
//     when they change (listen.go).
//
// Errors: Send returns one if the message is none, if the modern server did not take it,
// or if the Server is closed; everything else that fails is an answer to the request that
// it is about. The end of the modern server's process is no end of the session.
package tolegacy

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Limits bound what a client and the modern server can make of one session. How many
// calls are in flight is the session's to bound.
type Limits struct {
	Rounds        int // of questions to the client that one call may take
	Questions     int // to the client in one round
	Retries       int // of a call that the server asks to be repeated, without a question
	Subscriptions int // resources that the session is subscribed to

	RoundTimeout  time.Duration // for the client to answer the questions of one round
	RetryDelay    time.Duration // before a call is repeated for the first time; it doubles
	ListenTimeout time.Duration // for the server to say what it honours of a subscription
}

// DefaultLimits are those that there is no reason to change.
func DefaultLimits() Limits {
	return Limits{
		Rounds: 8, Questions: 32, Retries: 3, Subscriptions: 256,
		RoundTimeout: 10 * time.Minute, RetryDelay: time.Second, ListenTimeout: 10 * time.Second,
	}
}

// Metrics are counted over all sessions that share them.
type Metrics struct {
	Rounds               session.Counter // of questions that clients were asked
	QuestionTimeouts     session.Counter // questions that clients did not answer in time
	StoppedCalls         session.Counter // calls that ended because a question had no answer, or there were too many
	Retries              session.Counter // calls that were repeated because the server said so
	BadResults           session.Counter // answers of the server's that cannot be understood
	SubscriptionRefusals session.Counter // subscriptions beyond the limit
	LostListens          session.Counter // subscriptions that ended without the session's doing
	DroppedMessages      session.Counter // messages that nobody can use, of either side
	Panics               session.Counter // mistakes of ours, each of which ended a session
}

// Options are what a Server needs.
type Options struct {
	Modern  Modern
	Limits  Limits
	Metrics *Metrics
	Log     logr.Logger
}

// nameBytes bounds what is kept of a request or a subscription: id, token or URI.
const nameBytes = 8 << 10

// Server is the modern server as one session of an older revision sees it.
type Server struct {
	options Options
	metrics *Metrics
	receive func(session.Message)
	ended   func(error)

	ctx    context.Context // of everything that is done for the session
	cancel context.CancelFunc
	work   sync.WaitGroup
	listen *listener

	mu        sync.Mutex
	closed    bool
	greeting  bool    // initialize is being answered
	client    *client // who the client is, once it was
	logLevel  string
	meta      []byte // the members of _meta that say all this
	calls     map[string]*call
	questions map[string]*question
	asked     uint64 // questions so far
}

// New returns a server with a session, made of one that has none.
func New(options Options) *Server {
	if options.Metrics == nil {
		options.Metrics = &Metrics{}
	}
	s := &Server{options: options, metrics: options.Metrics, calls: map[string]*call{}, questions: map[string]*question{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.listen = newListener(s)
	return s
}

// Serve says who takes what the server has to say, and who is to be told, once, when it
// is closed. It must be called before the first message is sent.
func (s *Server) Serve(receive func(session.Message), ended func(error)) {
	s.receive, s.ended = receive, ended
}

// Close ends everything that the modern server does for the session. It returns at once.
func (s *Server) Close() { s.end(session.ErrEnded) }

func (s *Server) end(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.cancel()
	go func() {
		s.work.Wait()
		if s.ended != nil {
			s.ended(reason)
		}
	}()
}

// do has something done that may wait for the client, unless the server is closed.
func (s *Server) do(work func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(func() {
		defer s.recover()
		work()
	})
	return true
}

// recover makes a mistake of the adapter cost one session and not all of them. What runs here
// holds the locks of this session only, and releases them when it panics; Modern, which all
// sessions share, ends the adapter itself.
func (s *Server) recover() {
	if p := recover(); p != nil {
		err := fmt.Errorf("the adapter made a mistake: %v", p)
		s.metrics.Panics.Inc()
		s.options.Log.Error(err, "Ending a session because of a panic", "stack", string(debug.Stack()))
		s.end(err)
	}
}

// Send takes one message of the client's. It waits for the modern server to take a
// request, and never for the client.
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
		return s.reply(id, `{}`)
	case "initialize":
		return s.greet(ctx, request)
	}
	if !s.isReady() {
		return s.refuse(id, rpc.CodeInvalidRequest, "initialize comes first")
	}
	switch method {
	case "logging/setLevel":
		return s.setLevel(request)
	case "resources/subscribe", "resources/unsubscribe":
		return s.subscribe(request)
	case "tasks/get", "tasks/result", "tasks/list", "tasks/cancel":
		return s.refuse(id, rpc.CodeMethodNotFound, "tasks are not available from a server of protocol revision "+front.Revision20260728)
	case methodDiscover, methodListen:
		return s.refuse(id, rpc.CodeMethodNotFound, "not part of the protocol revision of this session")
	}
	return s.call(ctx, request)
}

// notice takes a notification. The modern server must not see any: what it would have to
// know it is told otherwise.
func (s *Server) notice(notification session.Message) {
	switch string(notification.Envelope.Method) {
	case rpc.MethodCancelled:
		s.cancelCall(notification.Envelope.RequestID.Of(notification.Bytes))
	case "notifications/initialized":
		if s.isReady() {
			s.listen.begin()
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

// reply answers a request here.
func (s *Server) reply(id []byte, result string) error {
	return s.deliverSoon(rpc.AppendResult(nil, id, []byte(result)))
}

func (s *Server) refuse(id []byte, code int, text string) error {
	return s.deliverSoon(rpc.AppendError(nil, id, code, text, nil))
}

// deliverSoon delivers an answer for a caller that must not wait for the client. There is
// at most one for each call that the session has in flight.
func (s *Server) deliverSoon(answer []byte) error {
	if !s.do(func() { s.deliver(answer, nil) }) {
		return session.ErrEnded
	}
	return nil
}

// deliver hands the session a message that was written here, with the call that it
// belongs to, if it does to one.
func (s *Server) deliver(message []byte, of *call) {
	envelope, err := rpc.ScanLenient(message)
	if err != nil {
		s.metrics.DroppedMessages.Inc() // the modern server's part of it is broken
		return
	}
	m := session.Message{Bytes: message, Envelope: envelope, Owned: true}
	if of != nil {
		m.Call = of.id
	}
	s.receive(m)
}

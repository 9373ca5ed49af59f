// Package session routes messages between the streams of one client and the one
// server process that serves it.
//
// A Session knows nothing of HTTP: front ends put messages in and take events off
// streams, and a Server takes messages and calls Deliver with its own. Nothing that
// a slow client does blocks Deliver before the session's own budget is used up.
package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
)

// Server is the other end of a session.
type Server interface {
	// Send writes one message, on behalf of the client that From names, or of the adapter
	// itself if From is nil. It blocks while the server does not read, for as long as it is
	// allowed to or the context lasts, whichever is less. It keeps nothing of the message. The
	// Envelope is empty if the sender has not scanned the bytes.
	Send(ctx context.Context, message Message) error
	// Close ends the server; it returns at once.
	Close()
}

// Limits bound one session. Every one of them has a metric and an error.
type Limits struct {
	Calls    int // in flight at a time
	Streams  int // open event streams, those of calls not counted; past it the oldest ends
	Detached int // streams of calls that no client reads and one may come back for; past it the oldest is given up. 0 is no limit
	Requests int // of the server, beside one for each call in flight, that no client has answered yet; past it they are refused. 0 is no limit

	// Bytes of messages, and what the adapter holds for each event and stream besides.
	ReplayBytes  int // sent events kept for clients that come back; 0 keeps none
	PendingBytes int // notifications waiting for a slow reader, per stream; ids of the server's requests; the adapter's replies to these
	TotalBytes   int // everything waiting; past it the server is no longer read
	// Memory is what all sessions share. A session that finds no room there keeps no sent
	// events, and then its server is no longer read. nil is no limit.
	Memory       *budget.Budget
	SendingBytes int // waiting for the server to read; past it nothing more is taken. 0 is no limit

	CommitAfter     time.Duration // without an answer, after which a call's stream is taken for one of several events; 0 waits for ever
	CallTimeout     time.Duration // of one call, whatever it reports
	CancelGrace     time.Duration // for an answer to a cancelled call, whose id is taken until then
	DeliveryTimeout time.Duration // of a server's request until a client stream takes it
	RequestTimeout  time.Duration // of a server's request until the client answers it; 0 waits for ever
}

// Limits that users do not set.
const (
	// DetachedStreams is more than the calls of one client that lost its connection, and
	// bounds a client that starts calls and never reads them.
	DetachedStreams = 64
	// ServerRequests is more than a server asks of one client at a time, and bounds one that
	// asks in a loop.
	ServerRequests = 256
	// PendingBytes holds thousands of notifications, or one large message, for a reader that
	// pauses for a moment.
	PendingBytes = 4 << 20

	// CommitAfter is long enough for most calls to be answered without a stream, and short
	// enough for progress to reach the client in time.
	CommitAfter = time.Second
	// CancelGrace is for a server that checks for a cancellation every few seconds.
	CancelGrace = 5 * time.Second
	// DeliveryTimeout is for a client that is about to open a stream, or to open it again.
	DeliveryTimeout = 10 * time.Second
	// RequestTimeout is for a person who is asked for input. A call may allow more.
	RequestTimeout = 10 * time.Minute
)

// Errors that front ends turn into answers.
var (
	ErrDuplicateID    = errors.New("a request with this id is in flight already")
	ErrTooManyCalls   = fault.Busy("too many calls are in flight in this session")
	ErrServerBusy     = fault.Busy("the server does not read what is waiting for it")
	ErrTooManyStreams = fault.Busy("too many streams are open in this session")
	ErrEnded          = errors.New("the session has ended")
	ErrUnknownEvent   = errors.New("events after this id are not kept")
	ErrStreamOver     = errors.New("the client has cancelled the call that this stream was for")
)

// Session is one client's conversation with one server. Its methods may be called
// at any time from any goroutine.
type Session struct {
	server  Server
	limits  Limits
	metrics *Metrics

	Identity
	Ending // guarded by mu
	// ServerChecks says that the server checks tokens itself. It is set as Identity is.
	ServerChecks bool
	// AnswerCancelled says that the client waits for an answer to calls that it has
	// cancelled, to know when the server is done with them. It is set as Identity is.
	AnswerCancelled bool

	mu       sync.Mutex
	room     *sync.Cond // signalled when waiting events were taken
	touched  time.Time
	use      places.Use // what the client has done so far
	attached int        // streams that a client reads

	lastStream uint64
	streams    map[uint64]*stream // all that can still be read or resumed
	generals   []*stream          // general ones that a client reads, by number
	left       []*stream          // general ones that none reads, for the next to inherit from
	detached   []*stream          // those of calls that no client reads and one may come back for, in the order in which they were left
	cancelled  []uint64           // numbers of the last ones that were resumable when their call was cancelled
	calls      map[string]*call   // by the id's key
	newest     *call              // of those that may be live
	taskTokens []string           // of calls that were answered with a task, oldest first
	replay     replay
	backlog    pending         // for the stream that opens next
	waiting    int             // what events cost that are not yet handed over
	account    *budget.Account // all that is held for the session
	paid       int             // what the account holds for the event that Deliver is about to add
	takes      uint64          // events that readers took, and pieces of large ones that they wrote
	pressed    budget.Pressure
	listening  bool               // a goroutine waits for the budget to have room
	writing    map[*Stream]func() // readers that write something large, and what interrupts that

	serverRequests map[string]*serverRequest // by the id's key
	requestBytes   int                       // of their ids
	replies        replies

	timer  *time.Timer // looks for what is late
	tickAt time.Time   // when it will; zero if it does not run

	sending atomic.Int64 // bytes of messages that the server has yet to read

	ended chan struct{}
}

// call is a client's request that has no answer yet.
type call struct {
	id        string // as the client spelled it
	key       string // of the id
	token     string // key of the token of its progress notifications
	tag       any    // the front end's own
	failed    string // how, once it is answered
	stream    *stream
	since     time.Time // when it was made, or else cancelled
	task      bool      // it asks for a task
	tool      bool      // it calls a tool
	cancelled bool
	over      bool // the client expects nothing more; the id is kept for a late answer

	// Among the calls that may be live.
	older, newer *call
}

// New returns the session of one client with the server.
func New(server Server, limits Limits, metrics *Metrics) *Session {
	now := time.Now()
	s := &Session{
		server: server, limits: limits, metrics: metrics,
		Identity: Identity{Began: now}, touched: now,
		streams:        map[uint64]*stream{},
		calls:          map[string]*call{},
		serverRequests: map[string]*serverRequest{},
		replay:         replay{limit: limits.ReplayBytes},
		ended:          make(chan struct{}),
	}
	s.room, s.Ending = sync.NewCond(&s.mu), NewEnding(&s.mu)
	s.account = limits.Memory.Account(s.giveWay)
	return s
}

// Account is all that is held for the session. A server that keeps messages for the session
// has them counted there.
func (s *Session) Account() *budget.Account { return s.account }

// Message is a message with what was found in it.
type Message struct {
	Bytes    []byte
	Envelope rpc.Envelope

	// Tag is the front end's own. The answer's Event has it.
	Tag any
	// From is the client that sends it; nil if the adapter does.
	From *caller.Caller

	// What a server knows that can tell whose its messages are. Processes cannot.
	Call      []byte // the id of the client's call that it belongs to
	Unrelated bool   // it belongs to no call

	Owned   bool // the code that takes it may keep Bytes: no other code changes them
	Charged bool // the adapter's budget had room for it, which the session takes over
	// Room is the account that has this room until the session takes it over, or code that
	// keeps the message and asks for room itself gives it back; nil if the budget has it back.
	Room *budget.Account
}

// GiveRoom gives the room of the message back to the budget.
func (m *Message) GiveRoom() {
	m.Room.Give(len(m.Bytes))
	m.Charged, m.Room = false, nil
}

// Scanned is the message with its envelope. It scans the bytes if the sender has not.
func (m Message) Scanned() (Message, error) {
	if m.Envelope.Kind != 0 {
		return m, nil
	}
	var err error
	if m.Envelope, err = rpc.Scan(m.Bytes); err != nil {
		return m, fmt.Errorf("read message: %w", err)
	}
	return m, nil
}

// Call sends requests to the server and returns the stream that their answers, and
// what belongs to them, will arrive on. More than one is a batch.
func (s *Session) Call(ctx context.Context, requests ...Message) (*Stream, error) {
	return s.call(ctx, nil, requests)
}

// CallOn is Call for clients that have one stream for everything: answers arrive on
// a stream that was opened before, in the order in which the server gave them.
func (s *Session) CallOn(ctx context.Context, general *Stream, requests ...Message) error {
	_, err := s.call(ctx, general, requests)
	return err
}

func (s *Session) call(ctx context.Context, on *Stream, requests []Message) (*Stream, error) {
	stream, err := s.register(on, requests)
	if err != nil {
		return nil, err
	}
	for i := range requests {
		if err := s.send(ctx, &requests[i]); err != nil {
			return s.notSent(stream, requests, i, err)
		}
	}
	return stream, nil
}

// notSent is for requests that did not reach the server, after others of their batch that did.
// If there are such, the client must not take the batch for one that it can send again: it
// gets their answers, and errors in place of the others.
func (s *Session) notSent(stream *Stream, requests []Message, sent int, err error) (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent == 0 {
		s.forgetLocked(stream.stream, requests)
		return nil, fmt.Errorf("send request to server: %w", err)
	}
	for _, request := range requests[sent:] {
		if c := s.callLocked(request.Envelope.ID.Of(request.Bytes)); c != nil && c.stream == stream.stream {
			s.answerLocked(c, rpc.CodeInternal, "the request did not reach the server: "+err.Error(), rpc.ErrorTypeOf(rpc.CodeInternal))
		}
	}
	return stream, nil
}

func (s *Session) register(on *Stream, requests []Message) (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endedBy != nil {
		return nil, ErrEnded
	}
	if len(s.calls)+len(requests) > s.limits.Calls {
		return nil, ErrTooManyCalls
	}
	stream := on
	if stream == nil {
		stream = s.newStreamLocked()
		s.attached++
	}
	s.touched = time.Now()
	for i := range requests {
		request := &requests[i]
		id := request.Envelope.ID.Of(request.Bytes)
		if s.callLocked(id) != nil {
			s.forgetLocked(stream.stream, requests[:i])
			return nil, ErrDuplicateID
		}
		c := &stream.first
		if c.stream != nil { // taken
			c = new(call)
		}
		c.key = string(rpc.IDKey(id))
		c.id = c.key
		if string(id) != c.key {
			c.id = string(id)
		}
		c.token, c.task, c.stream, c.since = tokenKey(request), asksForTask(request), stream.stream, s.touched
		c.tag, c.tool = request.Tag, string(request.Envelope.Method) == "tools/call"
		s.useLocked(request.Envelope.Method)
		s.calls[c.key] = c
		s.linkLocked(c)
		stream.awaits++
	}
	if s.limits.CommitAfter > 0 {
		s.lookAtLocked(s.touched.Add(s.limits.CommitAfter))
	}
	return stream, nil
}

// forgetLocked removes calls as if they had never been, and their stream if it is
// theirs alone.
func (s *Session) forgetLocked(stream *stream, requests []Message) {
	for _, request := range requests {
		if c := s.callLocked(request.Envelope.ID.Of(request.Bytes)); c != nil && c.stream == stream {
			s.removeLocked(c)
			stream.awaits--
		}
	}
	if !stream.general {
		s.detachLocked(stream)
		s.rerouteRequestsLocked(stream)
		s.dropLocked(stream)
	}
}

// Tell sends a notification, or an answer to a request of the server's.
func (s *Session) Tell(ctx context.Context, message Message) error {
	s.mu.Lock()
	if s.endedBy != nil {
		s.mu.Unlock()
		return ErrEnded
	}
	s.touched = time.Now()
	s.useLocked(message.Envelope.Method)
	answered, forward := s.noteLocked(message)
	s.mu.Unlock()
	if !forward {
		return nil
	}
	if err := s.send(ctx, &message); err != nil {
		s.takeBack(answered)
		return fmt.Errorf("send message to server: %w", err)
	}
	return nil
}

// send passes a client's message on, unless too many are waiting already: all of
// them are in memory until the server reads them. One may be of any size.
func (s *Session) send(ctx context.Context, message *Message) error {
	size, limit := int64(len(message.Bytes)), int64(s.limits.SendingBytes)
	defer s.sending.Add(-size)
	if waiting := s.sending.Add(size); limit > 0 && waiting > limit && waiting > size {
		return ErrServerBusy
	}
	return s.server.Send(ctx, *message)
}

// takeBack undoes that an answer was noted which did not reach the server, so that
// the client can try again.
func (s *Session) takeBack(answered *serverRequest) {
	if answered == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.serverRequests[answered.key]; !again && s.endedBy == nil {
		s.noteRequestLocked(answered)
	}
}

// noteLocked keeps the books for a message of the client's and says what it answers
// and whether the server should see it.
func (s *Session) noteLocked(message Message) (answered *serverRequest, forward bool) {
	e := &message.Envelope
	switch {
	case e.Kind == rpc.Response:
		request, known := s.serverRequests[string(rpc.IDKey(e.ID.Of(message.Bytes)))]
		if !known { // the server did not ask
			s.metrics.UnmatchedAnswers.Inc()
			return nil, false
		}
		s.forgetRequestLocked(request)
		return request, true
	case string(e.Method) == rpc.MethodCancelled:
		if c := s.callLocked(e.RequestID.Of(message.Bytes)); c != nil && !c.cancelled {
			s.cancelLocked(c)
		}
	}
	return nil, true
}

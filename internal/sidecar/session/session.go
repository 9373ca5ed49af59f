// Package session routes messages between the streams of one client and the server that
// serves it.
//
// A Session knows nothing of HTTP. Front ends hand it messages of the client, and take events
// from its streams. A Server receives messages, and calls Deliver with its own. A slow client
// blocks Deliver only when the session holds as much as it may.
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
	// Send writes one message of the client in From, or of the adapter if From is nil. It
	// blocks while the server does not read, until the context ends or the server's own
	// limit is over. It keeps nothing of the message. The Envelope is empty if the sender has
	// not scanned the bytes.
	Send(ctx context.Context, message Message) error
	// Close ends the server; it returns at once.
	Close()
}

// Limits bound one session.
type Limits struct {
	Calls    int // calls in flight at a time
	Streams  int // general streams that a client reads; beyond that the oldest ends
	Detached int // streams of calls that the client has left and may resume; beyond that the session gives up the oldest. 0 is no limit
	Requests int // requests of the server without an answer, beside one for each call in flight; the adapter refuses others. 0 is no limit

	// In bytes of messages, with the overhead of each event and stream.
	ReplayBytes  int // sent events, kept for a client that resumes a stream; 0 keeps none
	PendingBytes int // notifications that wait on one stream; ids of requests of the server; replies of the adapter to these
	TotalBytes   int // all events that wait; beyond that the adapter stops reading the server
	// Memory is the budget that all sessions share. A session without room there gives up
	// sent events, and then the adapter stops reading its server. nil is no limit.
	Memory       *budget.Budget
	SendingBytes int // messages that the server has not read yet; the session refuses others. 0 is no limit

	CommitAfter     time.Duration // how long the client waits for an answer before its response becomes an event stream; 0 waits for ever
	CallTimeout     time.Duration // for one call, with or without progress
	CancelGrace     time.Duration // for an answer to a cancelled call, which keeps its id until then
	DeliveryTimeout time.Duration // for the client to open a stream for a request of the server
	RequestTimeout  time.Duration // for the client to answer a request of the server; 0 waits for ever
}

// Limits that users do not set.
const (
	// DetachedStreams is more than the calls in flight of a client that loses its connection.
	// It bounds a client that sends calls and never reads the answers.
	DetachedStreams = 64
	// ServerRequests is more than a server asks of one client at a time. It bounds a server
	// that sends requests in a loop.
	ServerRequests = 256
	// PendingBytes holds thousands of notifications, or one large message, for a client that
	// stops reading for a moment.
	PendingBytes = 4 << 20

	// CommitAfter is long enough for servers to answer most calls before it is over, and short
	// enough for the client to see progress in time.
	CommitAfter = time.Second
	// CancelGrace is for a server that checks for a cancellation every few seconds.
	CancelGrace = 5 * time.Second
	// DeliveryTimeout is for a client that opens its stream for the first time, or again.
	DeliveryTimeout = 10 * time.Second
	// RequestTimeout is for a person who answers a question of the server. A longer
	// CallTimeout extends it.
	RequestTimeout = 10 * time.Minute
)

// Errors that front ends turn into answers.
var (
	ErrDuplicateID    = errors.New("a request with this id is in flight already")
	ErrLongName       = fmt.Errorf("id and progress token may have %d bytes each", nameBytes)
	ErrTooManyCalls   = fault.Busy("too many calls are in flight in this session")
	ErrServerBusy     = fault.Busy("the server does not read what is waiting for it")
	ErrTooManyStreams = fault.Busy("too many streams are open in this session")
	ErrEnded          = errors.New("the session has ended")
	ErrUnknownEvent   = errors.New("events after this id are not kept")
	ErrStreamOver     = errors.New("the client has cancelled the call that this stream was for")
)

// Session is one client's conversation with one server. Any goroutine may call its methods at
// any time.
type Session struct {
	server  Server
	limits  Limits
	metrics *Metrics

	Identity
	Ending // guarded by mu
	// ServerChecks says that the server checks tokens itself. The code that sets the Identity
	// sets it.
	ServerChecks bool
	// AnswerCancelled says that the client waits for an answer to calls that it has
	// cancelled. The code that sets the Identity sets it.
	AnswerCancelled bool

	mu       sync.Mutex
	room     *sync.Cond // signaled when fewer events wait
	touched  time.Time
	use      places.Use // what the client has done so far
	attached int        // streams that a client reads
	requests uint64     // of the client, so far

	lastStream uint64
	streams    map[uint64]*stream // streams that a client can still read or resume, by number
	generals   []*stream          // general streams that a client reads, in order of their numbers
	left       []*stream          // general streams that no client reads; the next one inherits their events
	detached   []*stream          // streams of calls that no client reads but one may resume, in the order in which the clients left them
	cancelled  []uint64           // numbers of resumable streams whose calls clients cancelled, oldest first
	calls      map[string]*call   // by the key of the id
	live       []*call            // calls that may be live, oldest first
	taskTokens []string           // progress tokens of calls that the server answered with a task, oldest first
	replay     replay
	backlog    pending         // events for the next general stream
	waiting    int             // cost of the events that clients have not read yet
	account    *budget.Account // the memory of the session
	paid       int             // what the account holds for the event that Deliver adds next
	takes      uint64          // events that readers took, and pieces of large events that they wrote
	pressed    budget.Pressure
	listening  bool               // a goroutine waits for the budget to have room
	writing    map[*Stream]func() // readers that write a large event, and what interrupts the write

	serverRequests map[string]*serverRequest // by the key of the id
	requestBytes   int                       // length of their ids
	replies        replies
	rights

	timer  *time.Timer // calls tick
	tickAt time.Time   // when the timer fires; zero if it does not run

	sending atomic.Int64 // bytes of messages that the server has not read yet
	strayed *filter      // of a call that strayLocked has seen; nil for most sessions

	ended chan struct{}
}

// New returns a session of one client with the server.
func New(server Server, limits Limits, metrics *Metrics) *Session {
	now := time.Now()
	s := &Session{
		server: server, limits: limits, metrics: metrics,
		Identity: Identity{Began: now}, touched: now,
		streams:        map[uint64]*stream{},
		calls:          map[string]*call{},
		serverRequests: map[string]*serverRequest{},
		ended:          make(chan struct{}),
	}
	s.room, s.Ending = sync.NewCond(&s.mu), NewEnding(&s.mu)
	s.account = limits.Memory.Account(s.giveWay)
	s.replay.account = s.account
	return s
}

// Account returns the account for the memory of the session. A server that keeps messages for
// the session counts them there.
func (s *Session) Account() *budget.Account { return s.account }

// Message is a JSON-RPC message with its envelope.
type Message struct {
	Bytes    []byte
	Envelope rpc.Envelope

	// Tag is a value of the front end. The Event with the answer has it, too.
	Tag any
	// From is the client that sends the message; nil if the adapter does.
	From *caller.Caller

	// Set by servers that know which call a message belongs to. Child processes do not.
	Call      []byte // the id of the call that the message belongs to
	Unrelated bool   // the message belongs to no call

	Owned   bool // the receiver may keep Bytes: no other code changes them
	Charged bool // the budget has room for the message, which the session takes over
	// Room is the account that holds this room until the session takes it over, or GiveRoom
	// gives it back. nil means that no account holds it.
	Room *budget.Account
}

// GiveRoom gives the room of the message back to the budget.
func (m *Message) GiveRoom() {
	m.Room.Give(len(m.Bytes))
	m.Charged, m.Room = false, nil
}

// Scanned returns the message with its envelope. It scans the bytes if the sender has not.
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

// Call sends requests to the server. It returns the stream for their answers, and for other
// messages that belong to them. Several requests are a batch.
func (s *Session) Call(ctx context.Context, requests ...Message) (*Stream, error) {
	return s.call(ctx, nil, requests)
}

// CallOn is Call for clients with one stream for all messages. The answers arrive on that
// stream, in the order in which the server sends them.
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

// notSent handles an error of sending a batch, after the server got so many of its requests.
// If the server got none, the client gets the error and may send the batch again. Otherwise
// the client gets the answers to those requests, and errors in place of the others.
func (s *Session) notSent(stream *Stream, requests []Message, sent int, err error) (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.callLocked(requests[sent].Envelope.ID.Of(requests[sent].Bytes)); c != nil && c.stream == stream.stream {
		s.strayLocked(c) // the server may have got it
	}
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
		if err := s.checkNamesLocked(request, id); err != nil {
			s.forgetLocked(stream.stream, requests[:i])
			return nil, err
		}
		c := &stream.first
		if c.stream != nil { // taken
			c = new(call)
		}
		c.id, c.key = idAndKey(id)
		c.token, c.task, c.stream, c.since = tokenKey(request), asksForTask(request), stream.stream, s.touched
		c.tag, c.tool = request.Tag, string(request.Envelope.Method) == rpc.MethodCallTool
		c.opens = string(request.Envelope.Method) == rpc.MethodInitialize
		s.fromLocked(request)
		c.filter = newFilter(request.From, request.Envelope.Method)
		s.useLocked(request.Envelope.Method)
		s.calls[c.key] = c
		s.live = append(s.live, c)
		stream.awaits++
	}
	s.requests += uint64(len(requests))
	if s.limits.CommitAfter > 0 {
		s.lookAtLocked(s.touched.Add(s.limits.CommitAfter))
	}
	return stream, nil
}

// nameBytes bounds what a session keeps of a call: its id, and its progress token, which a
// session keeps for as long as it lasts if the call becomes a task.
const nameBytes = 8 << 10

// checkNamesLocked says why a request cannot be in flight with this id and its progress token.
func (s *Session) checkNamesLocked(request *Message, id []byte) error {
	switch {
	case len(id) > nameBytes || len(request.Envelope.ProgressToken.Of(request.Bytes)) > nameBytes:
		return ErrLongName
	case s.callLocked(id) != nil:
		return ErrDuplicateID
	default:
		return nil
	}
}

// forgetLocked removes calls that the server did not get, and their stream unless it is a
// general stream.
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

// TellAll sends the notifications and answers among the messages of a client, and returns its
// requests, for Call. It reuses the slice.
func (s *Session) TellAll(ctx context.Context, from *caller.Caller, messages []Message) (requests []Message, err error) {
	requests = messages[:0]
	for i := range messages {
		message := messages[i]
		message.From = from
		if message.Envelope.Kind == rpc.Request {
			requests = append(requests, message)
		} else if err := s.Tell(ctx, message); err != nil {
			return nil, err
		}
	}
	return requests, nil
}

// Tell sends the server a notification, or an answer to a request of the server.
func (s *Session) Tell(ctx context.Context, message Message) error {
	s.mu.Lock()
	if s.endedBy != nil {
		s.mu.Unlock()
		return ErrEnded
	}
	s.touched = time.Now()
	s.useLocked(message.Envelope.Method)
	s.fromLocked(&message)
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

// send sends the server a message of the client, unless the messages that the server has not
// read yet exceed SendingBytes. A single message may exceed it.
func (s *Session) send(ctx context.Context, message *Message) error {
	size, limit := int64(len(message.Bytes)), int64(s.limits.SendingBytes)
	defer s.sending.Add(-size)
	if waiting := s.sending.Add(size); limit > 0 && waiting > limit && waiting > size {
		return ErrServerBusy
	}
	return s.server.Send(ctx, *message)
}

// takeBack restores a server request whose answer did not reach the server, so that the client
// can answer again.
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

// noteLocked records an answer or a cancellation of the client. It returns the request of the
// server that the client answers, or nil, and whether the server should get the message.
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

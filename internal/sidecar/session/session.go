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

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
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

	CommitAfter     time.Duration // how long the client waits for an answer before its response becomes an event stream; 0 is no limit
	CallTimeout     time.Duration // for one call, with or without progress
	CancelGrace     time.Duration // for an answer to a cancelled call, which keeps its id until then
	DeliveryTimeout time.Duration // for the client to open a stream for a request of the server
	RequestTimeout  time.Duration // for the client to answer a request of the server; 0 is no limit
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

// Package backend connects the adapter to its MCP server, in one of four ways: a process for
// each session, a process that all sessions share, a server that speaks Streamable HTTP, and
// one that speaks HTTP+SSE. Each way also serves the clients whose era the server does not
// speak, by translation.
package backend

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/admin"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/streamable"
	"github.com/slipway-mcp/slipway/internal/sidecar/handle"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/metrics"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/news"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Backend is a way to reach the server.
type Backend interface {
	// Open opens a session for a client. The client sees the error.
	Open(ctx context.Context, from *caller.Caller) (*session.Session, error)
	// ServeStateless answers a message of revision 2026-07-28.
	ServeStateless(w http.ResponseWriter, r *edge.Request)
	// Routes are the front ends of the MCP endpoint, by path. The handler serves sessions of
	// Open and messages of ServeStateless at that path.
	Routes(path string, handler *streamable.Handler) map[string]edge.Route

	// Connect returns a server for the keeper to watch: one that has a session, or one that
	// has had no message yet, if stateless is true.
	Connect(ctx context.Context, stateless bool) (keeper.Connection, error)
	// ProbeOrder says how the keeper asks the server. It begins with initialize, and not with
	// server/discover, if initializeFirst is true. It tries nothing else if only is true.
	ProbeOrder() (initializeFirst, only bool)
	// Serves lists the protocol revisions that clients can use, newest first, if the server
	// describes itself in this way.
	Serves(server mcpprobe.Server) []string

	// Run works in the background until the drain is over.
	Run(ctx context.Context)
	// Starts says how soon a session has its process.
	Starts() Starts
	// Rest has the backend keep no spare processes, or keep them again.
	Rest(rests bool)
	// Refuse refuses requests of clients without sessions from now on. Processes that do nothing for them end.
	Refuse()
	// Drain waits for requests in flight of clients without sessions. All sessions must have
	// ended before: translated ones make such requests.
	Drain(ctx context.Context)
	// Close ends what is left.
	Close()

	// Changes is where this pod's clients and processes hear of those of other pods.
	Changes() news.Hub
	// Processes counts how the server's processes ended recently. The adapter knows no processes
	// of servers that speak HTTP.
	Processes() adapterapi.Processes
	// Parts are shared by all clients, so none of them may be stuck.
	Parts() []admin.Part
	Metrics() []metrics.Metric
}

// Starts says how soon a session has its process. It is zero if sessions have none of their own.
type Starts struct {
	Spares int           // processes that wait for a session
	Time   time.Duration // that a process takes to start, on average; 0 if that is not known
}

// Env is the part of the adapter that a backend uses.
type Env struct {
	config.Config
	Sessions       *session.Registry
	SessionMetrics session.Metrics
	Memory         *budget.Budget
	// Keeper watches the server through the backend, so it is set after the backend is made.
	Keeper *keeper.Keeper

	number atomic.Uint64 // of the last session without a process of its own
}

// MintID makes the id of a session.
func (e *Env) MintID() string { return e.Keys.Mint(e.Owner) }

// newHandles returns what binds the server's handles to their callers.
func (e *Env) newHandles() *handle.Binder {
	return handle.New(handle.Options{Keys: e.Keys, Owner: e.Owner, Peers: e.Peers})
}

// nextNumber returns a session's number in the log. Session ids are secret, so the adapter does
// not log them. A session with its own process uses the label of that process's lines on standard
// error instead.
func (e *Env) nextNumber() string { return strconv.FormatUint(e.number.Add(1), 10) }

// numbered gives a number to a session without a process of its own.
func (e *Env) numbered(opened *session.Session, err error) (*session.Session, error) {
	if err == nil {
		opened.Number = e.nextNumber()
	}
	return opened, err
}

// SessionLimits are the limits of each session.
func (e *Env) SessionLimits() session.Limits {
	return session.Limits{
		Calls: e.CallsPerSession, Streams: e.StreamsPerSession, Detached: session.DetachedStreams, Requests: session.ServerRequests,
		ReplayBytes: e.ReplayBytes, PendingBytes: session.PendingBytes, TotalBytes: e.heldBytes(), Memory: e.Memory,
		SendingBytes: e.sendingBytes(),
		CommitAfter:  session.CommitAfter, CallTimeout: e.CallTimeout, CancelGrace: session.CancelGrace,
		DeliveryTimeout: session.DeliveryTimeout, RequestTimeout: max(session.RequestTimeout, e.CallTimeout),
	}
}

// heldBytes bounds what waits for the clients of one server: its two largest messages, and
// notifications.
func (e *Env) heldBytes() int { return 2*e.LineBytes + session.PendingBytes }

// sendingBytes bounds what waits for one server to read: the two largest messages of clients.
func (e *Env) sendingBytes() int { return 2 * int(e.BodyBytes) }

// The beginnings of errors that clients see when no session can be opened.
const (
	notStarted = "the server could not be started"
	notReached = "the server could not be reached"
)

// notOpened is the error that a client sees.
func notOpened(what string, err error) error {
	return fmt.Errorf("%s: %w", what, fault.ForClients(err))
}

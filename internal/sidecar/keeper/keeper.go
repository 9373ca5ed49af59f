// Package keeper keeps one server process for the adapter itself, to know what the server offers and
// whether it works.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
)

// Connection is a connection to a fresh server.
type Connection struct {
	Target mcpprobe.Target
	// Close ends the server. It does not wait.
	Close func()
	// Reason returns why the server ended, or nil if the adapter has ended it or it runs on for so
	// long.
	Reason func(patience time.Duration) error
}

// Options configure a Keeper.
type Options struct {
	// Connect returns a fresh server. If stateless is true, the keeper opens it without a session,
	// so the server must have got no request yet. If the server was asked to initialize and
	// refused, the error wraps an *mcpprobe.Error of the class Rejected.
	Connect func(ctx context.Context, stateless bool) (Connection, error)

	// Container is where servers start; nil if that is always there.
	Container Container

	StartTimeout time.Duration // for a fresh server to list what it offers
	// Patience is after which a fresh server may count as silent. If Starts is true, and no server
	// has answered yet, a server that writes nothing counts as starting until StartTimeout.
	Patience     time.Duration
	Starts       bool // Connect starts the server
	PingInterval time.Duration
	PingTimeout  time.Duration
	Settle       time.Duration // between two requests for a catalog that keeps changing
	Log          logr.Logger

	// Probe configures requests. If SkipDiscover is true, the keeper opens servers by initialize
	// first, and by server/discover if they refuse that. The keeper sets SkipInitialize.
	Probe mcpprobe.Options
	// Pinned has the keeper open every server in the one way that SkipDiscover says.
	Pinned bool
	// Serves returns the protocol versions that clients can use, given the server's own description;
	// nil if those are the ones that the server lists. If the result changes for another reason, the
	// owner of the keeper calls Refresh.
	Serves func(own mcpprobe.Server) []string
}

// The adapter knows that a server has stopped answering after the sum of these, 9 s. The kubelet asks
// every two seconds, and acts on the second "no", at most 4 s later. The rest of promise.Broken is for
// the kubelet, the API server and the manager to tell one another.
const (
	PingInterval = 3 * time.Second
	PingTimeout  = 3 * time.Second
	Patience     = 3 * time.Second
)

// Settle is how often the keeper lists what a server offers while that keeps changing.
const Settle = time.Second

// State is what the keeper knows about the server.
type State struct {
	// Ready is true once a fresh server has answered, even if it only asked for credentials. It stays
	// true while the keeper replaces a server that died.
	Ready bool
	// Err says why the server is not ready, or what failed last. Reason is its class.
	Err    error
	Reason adapterapi.Reason
	// Catalog is what the server offered when it last listed that; nil before the first time.
	Catalog *mcpprobe.Catalog
	// Stateless is true if the last server that worked was opened without a session.
	Stateless bool
	// Opened is true if any server has opened a session.
	Opened bool
	// Failures is how many starts in a row have failed since a server last answered.
	Failures int64
}

// ErrStarting is the Err of a keeper that has no answer of a server yet.
var ErrStarting = errors.New("the server is starting")

// ErrNoContainer is wrapped by an error of Connect if the server's container does not run, so that
// there is no server to judge. While its image is pulled it is the Err of the state.
var ErrNoContainer = errors.New("the server's container has not started yet")

// errContainerGone is the Err if the container has run before.
var errContainerGone = errors.New("the server's container has ended, and has not started again yet")

// errUnanswered is the Err while the first server runs and has yet to answer. Its text does not change
// with time.
var errUnanswered = errors.New("the server runs and has not answered yet")

// ErrNotListening is wrapped by an error of Connect if the adapter does not start the server itself,
// and no process listens at its address.
var ErrNotListening = errors.New("no process listens at the server's address")

// Container is the container in which servers start.
type Container interface {
	Connected() bool
	WaitConnected(ctx context.Context) error
}

// ErrNoRoom is wrapped by an error of Connect if the adapter may start no more processes. Those that
// run serve clients, so the server stays ready.
var ErrNoRoom = errors.New("there is no room for another server process")

// Keeper keeps a server and checks it.
type Keeper struct {
	options Options

	slowest     time.Duration // answer of a fresh server so far
	opening     opening       // of the next server
	hasSessions bool          // byInitialize has worked
	refresh     chan struct{} // holds a value if the keeper has to list again
	connected   bool          // Connect has returned a server, at any time
	unheard     time.Time     // since when no process listens at the server's address; zero if one does

	mu       sync.Mutex
	state    State
	changed  chan struct{} // closed and replaced with every change of state
	stray    string        // first line of output that was no message, since a server answered
	answered bool          // a server has answered, at any time
	waiting  *wait         // for the answer of a server; nil if the keeper does not wait
	logged   string        // the last failure in the log
}

// New returns a Keeper without a server. Run starts one.
func New(options Options) *Keeper {
	return &Keeper{options: options, opening: options.first(), state: State{Err: ErrStarting, Reason: adapterapi.Starting}, changed: make(chan struct{}), refresh: make(chan struct{}, 1)}
}

// Refresh has the keeper list again what the server offers. It does not wait.
func (k *Keeper) Refresh() {
	select {
	case k.refresh <- struct{}{}:
	default:
	}
}

// State returns what the keeper knows now, and a channel that closes when that changes.
func (k *Keeper) State() (State, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state, k.changed
}

func (k *Keeper) set(change func(*State)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.state)
	close(k.changed)
	k.changed = make(chan struct{})
}

// pace is faster than that of other processes, because the pod is not ready before a server answers
// the keeper.
var pace = mux.Pace{First: 100 * time.Millisecond, Last: 5 * time.Second}

// Run keeps a server until the context ends. It replaces a server that dies, and backs off while
// servers do not answer or die soon. It needs no mux.Supervisor, since only this goroutine uses the
// server.
func (k *Keeper) Run(ctx context.Context) {
	var backOff mux.BackOff
	for k.awaitContainer(ctx); ctx.Err() == nil; k.awaitContainer(ctx) {
		begin := time.Now()
		answered, reason, err := k.keepOne(ctx)
		if ctx.Err() != nil {
			return
		}
		k.logFailure(answered, reason, err)
		k.settle(answered, reason, err)
		if answered && time.Since(begin) >= mux.Lasting {
			backOff.Reset()
			continue
		}
		mux.Pause(ctx, backOff.Failed(err, pace))
	}
}

// keepOne starts a server and watches it until it fails. It reports whether the server has answered.
func (k *Keeper) keepOne(ctx context.Context) (answered bool, reason adapterapi.Reason, err error) {
	begin := time.Now()
	a := k.start(ctx, k.opening, true)
	if k.mayBeStateless(a) {
		a = k.tryStateless(ctx, a)
	}
	if a.err != nil {
		k.noteFailure(a)
		if a.reason == adapterapi.NoRoom && k.isFirst() {
			a.reason = adapterapi.Unstartable // no room for the first process is no room for any
		}
		return false, a.reason, a.err
	}
	for next := &a; next != nil; {
		a = *next
		next, reason, err = k.use(ctx, a, begin)
		begin = time.Now()
	}
	return true, reason, err
}

// use publishes what a server that works offers, and watches it until it fails or another one
// replaces it.
func (k *Keeper) use(ctx context.Context, a attempt, began time.Time) (next *attempt, reason adapterapi.Reason, err error) {
	defer a.connection.Close()
	defer a.session.Close()
	k.noteSuccess(a)
	before, _ := k.State()
	k.publish(a.how, a.listing)
	k.logReady(before.Ready, a.listing, time.Since(began))
	if next, err = k.watch(ctx, a); next != nil {
		return next, "", nil
	}
	reason, _, err = explain(err, a.connection)
	return nil, reason, err
}

// publish puts what a server that works offers into the state. Without a new catalog, the last one
// stays.
func (k *Keeper) publish(how opening, l listing) {
	k.set(func(s *State) {
		k.stray = ""
		s.Ready, s.Reason, s.Err, s.Failures = true, l.reason, l.err, 0
		s.Stateless = how == byDiscover
		if l.catalog != nil {
			s.Catalog = l.catalog
		}
	})
}

// settle puts the failure of a server into the state.
func (k *Keeper) settle(answered bool, reason adapterapi.Reason, err error) {
	failures := k.failures(err)
	k.set(func(s *State) {
		s.Reason, s.Err = reason, err
		switch {
		case answered || reason == adapterapi.NoRoom || reason == adapterapi.Busy:
		case reason == adapterapi.Unauthorized: // the server works, and clients may have the credentials
			s.Ready, s.Failures = true, 0
		case reason == adapterapi.Starting: // the kubelet starts the container
			s.Ready = false
		default:
			s.Ready, s.Failures = false, failures
		}
	})
}

// failures returns the count of failures with the one of err. A server that the adapter does not start
// fails once in each StartTimeout that passes without it, and so does one that has yet to answer for
// the first time: it may listen before it is ready to answer.
func (k *Keeper) failures(err error) int64 {
	k.mu.Lock()
	isStarting := !k.options.Starts && !k.answered
	k.mu.Unlock()
	if !errors.Is(err, ErrNotListening) && !isStarting {
		k.unheard = time.Time{}
		state, _ := k.State()
		return state.Failures + 1
	}
	if k.unheard.IsZero() {
		k.unheard = time.Now()
	}
	return int64(time.Since(k.unheard) / k.options.StartTimeout)
}

// slower is how many times the slowest answer so far a fresh server may take.
const slower = 3

// patience is how long a fresh server may take before it counts as silent.
func (k *Keeper) patience() time.Duration {
	return min(max(k.options.Patience, slower*k.slowest), k.options.StartTimeout)
}

// watch pings the server, and lists again when the server reports a change. If a recheck finds a
// server with a session, watch returns that. Otherwise it returns why the server failed.
func (k *Keeper) watch(ctx context.Context, a attempt) (*attempt, error) {
	recheck := k.newRecheck(a)
	defer recheck.running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ping := time.NewTicker(k.options.PingInterval)
	defer ping.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-a.session.Done():
			return nil, a.session.Err()
		case <-k.refresh:
			err = k.relist(ctx, a)
		case <-a.session.Changed():
			err = k.relist(ctx, a)
		case <-ping.C:
			err = k.ping(ctx, a)
		case <-recheck.due:
			recheck.start(ctx)
		case other := <-recheck.found:
			if next := recheck.consider(other); next != nil {
				return next, nil
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

func (k *Keeper) ping(ctx context.Context, a attempt) error {
	ctx, cancel := context.WithTimeout(ctx, k.options.PingTimeout)
	defer cancel()
	if err := a.session.Ping(ctx); err != nil {
		return fmt.Errorf("ping server: %w", err)
	}
	return nil
}

// relist lists again what a server offers. It pauses afterwards, for servers that keep changing.
func (k *Keeper) relist(ctx context.Context, a attempt) error {
	limited, cancel := context.WithTimeout(ctx, k.options.StartTimeout)
	defer cancel()
	l, err := k.list(limited, a.session)
	if err != nil {
		return err
	}
	k.publish(a.how, l)
	if !mux.Pause(ctx, k.options.Settle) {
		return ctx.Err()
	}
	return nil
}

// Package keeper keeps one process of the server for itself and knows from it what
// the server offers and whether it works.
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

// Connection is a server to look at.
type Connection struct {
	Target mcpprobe.Target
	// Close ends the server; it returns at once.
	Close func()
	// Reason says why the server ended, or nil if it has not, or was asked to.
	Reason func() error
}

// Options say how a Keeper looks.
type Options struct {
	// Connect returns a fresh server. If stateless is true, the keeper asks it without a
	// session, so it must have had no message yet. If the server has had initialize and
	// refused it, the error wraps an *mcpprobe.Error of the class Rejected.
	Connect func(ctx context.Context, stateless bool) (Connection, error)

	StartTimeout time.Duration // for a fresh server to tell what it offers
	Patience     time.Duration // until one that has not told is called silent, at least
	PingInterval time.Duration
	PingTimeout  time.Duration
	Settle       time.Duration // between two looks at a catalogue that keeps changing
	Log          logr.Logger

	// Probe says how servers are asked. SkipDiscover is how to begin: a server that
	// refuses to initialize is then followed at once by one that is asked without.
	// SkipInitialize is for the keeper to set.
	Probe mcpprobe.Options
	// Pinned has every server be asked in the one way that SkipDiscover says.
	Pinned bool
	// Serves says which protocol versions clients can use, given what the server says
	// of itself; nil if they can use what the server lists. Equal servers must have equal
	// catalogues: if it depends on anything else, Refresh follows each change of that.
	Serves func(own mcpprobe.Server) []string
}

// The adapter knows that a server has stopped to answer after the sum of these, and the kubelet
// asks within two seconds more: together less than promise.Broken.
const (
	PingInterval = 4 * time.Second
	PingTimeout  = 3 * time.Second
	Patience     = 3 * time.Second
)

// Settle is how often the keeper lists what a server offers while that keeps changing.
const Settle = time.Second

// State is what is known of the server.
type State struct {
	// Ready is true when a fresh server has answered, if only to ask for
	// credentials, and stays true while another one is started in place of one
	// that died.
	Ready bool
	// Err says why not, or what went wrong last; Reason is its class.
	Err    error
	Reason adapterapi.Reason
	// Catalog is what the server offered when last asked; nil before the first time.
	Catalog *mcpprobe.Catalog
	// Stateless is true if the last server that worked has no sessions: it refuses to
	// initialize, or is known never to be asked.
	Stateless bool
	// Opened is true if a server has ever opened a session, whatever came of asking what
	// it offers.
	Opened bool
}

// ErrStarting is the Err of a keeper that has not asked any server yet.
var ErrStarting = errors.New("the server is starting")

// ErrNoRoom is what Connect's error wraps when there is no room for another process.
// What serves clients goes on serving them, so it does not make the server unready.
var ErrNoRoom = errors.New("there is no room for another server process")

// Keeper keeps a server and looks after it.
type Keeper struct {
	options Options

	took        time.Duration // the slowest that a fresh server has answered
	noise       noise         // of servers that have not answered
	opening     opening       // of the next server
	hasSessions bool          // a server has worked by initialize

	refresh chan struct{} // has a value when the server is to be asked again

	mu      sync.Mutex
	state   State
	story   story
	changed chan struct{} // closed and replaced with every change of state
}

// New returns a Keeper that knows nothing yet. Run makes it look.
func New(options Options) *Keeper {
	return &Keeper{options: options, opening: options.first(), state: State{Err: ErrStarting, Reason: adapterapi.Starting}, changed: make(chan struct{}), refresh: make(chan struct{}, 1)}
}

// Refresh has the server asked again what it offers. It returns at once.
func (k *Keeper) Refresh() {
	select {
	case k.refresh <- struct{}{}:
	default:
	}
}

// State is what is known now, and a channel that is closed when that changes.
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

// pace is faster than that of other processes: the pod is not ready before the keeper says
// so, and each try finds out whether the server works by now.
var pace = mux.Pace{First: 100 * time.Millisecond, Last: 5 * time.Second}

// Run keeps a server until the context ends. One that dies is replaced at once; if
// the fresh one does not answer either, the state says so. Those that do not answer,
// or do not live long, are followed by others ever more slowly. There is no mux.Supervisor
// here: no other goroutine waits for the server, and this one stays with it.
func (k *Keeper) Run(ctx context.Context) {
	var backOff mux.BackOff
	for ctx.Err() == nil {
		begin := time.Now()
		answered, reason, err := k.keepOne(ctx)
		if ctx.Err() != nil {
			return
		}
		k.logFailure(answered, reason, err)
		k.set(func(s *State) {
			s.Reason, s.Err = reason, err
			switch {
			case answered || reason == adapterapi.NoRoom || reason == adapterapi.Busy:
			case reason == adapterapi.Unauthorized: // it is there, and clients may have what the keeper has not
				s.Ready = true
			default:
				s.Ready = false
			}
		})
		if answered && time.Since(begin) >= mux.Lasting {
			backOff.Reset()
			continue
		}
		mux.Pause(ctx, backOff.Failed(err, pace))
	}
}

// keepOne starts a server and stays with it until it fails. It says whether the
// server ever answered.
func (k *Keeper) keepOne(ctx context.Context) (answered bool, reason adapterapi.Reason, err error) {
	begin := time.Now()
	a := k.start(ctx, k.opening, true)
	if k.mayHaveNone(a) {
		a = k.without(ctx, a)
	}
	if a.err != nil {
		k.failed(a)
		return false, a.reason, a.err
	}
	for next := &a; next != nil; {
		a = *next
		next, reason, err = k.stay(ctx, a, begin)
		begin = time.Now()
	}
	return true, reason, err
}

// stay stays with a server that works until it fails, or until another is to take its
// place.
func (k *Keeper) stay(ctx context.Context, a attempt, began time.Time) (next *attempt, reason adapterapi.Reason, err error) {
	defer a.connection.Close()
	defer a.session.Close()
	k.noise.forget()
	k.worked(a)
	before, _ := k.State()
	k.learned(a.how, a.listed)
	k.logReady(before.Ready, a.listed, time.Since(began))
	if next, err = k.follow(ctx, a); next != nil {
		return next, "", nil
	}
	reason, err = explain(err, a.connection)
	return nil, reason, err
}

// learned makes known what a server that works offers. The last catalogue stays when
// there is no new one.
func (k *Keeper) learned(how opening, l listed) {
	k.set(func(s *State) {
		s.Ready, s.Reason, s.Err = true, l.reason, l.err
		s.Stateless = how == byDiscover
		if l.catalog != nil {
			s.Catalog = l.catalog
		}
	})
}

// slower is how many times longer than any before it a fresh server may take.
const slower = 3

// patience is how long a fresh server may take before it is called silent.
func (k *Keeper) patience() time.Duration {
	return min(max(k.options.Patience, slower*k.took), k.options.StartTimeout)
}

func (k *Keeper) silence(patience time.Duration, cause error) error {
	return &silence{patience: patience, noise: k.noise.heard(), cause: cause}
}

// awaitAnswer calls a server silent that takes long to answer, well before it is
// given up: whoever waits for it should know. The function that it returns is called
// when the wait is over.
func (k *Keeper) awaitAnswer() (over func(answered bool)) {
	begin := time.Now()
	isOver := false // guarded by k.mu, so that nothing is called silent after its answer
	patience := k.patience()
	silent := time.AfterFunc(patience, func() {
		err := k.silence(patience, nil)
		noticed := false
		k.set(func(s *State) {
			if !isOver {
				s.Ready, s.Reason, s.Err = false, adapterapi.Silent, err
				noticed = true
			}
		})
		if noticed {
			k.logFailure(false, adapterapi.Silent, err)
		}
	})
	return func(answered bool) {
		silent.Stop()
		k.mu.Lock()
		defer k.mu.Unlock()
		isOver = true
		if answered {
			k.took = max(k.took, time.Since(begin))
		}
	}
}

// follow looks again when the server says that something has changed, and asks now
// and then whether it is alive. If it finds another that tells more, it returns that.
func (k *Keeper) follow(ctx context.Context, a attempt) (*attempt, error) {
	ping := time.NewTicker(k.options.PingInterval)
	defer ping.Stop()
	doubt := k.newDoubt(ctx, a)
	defer doubt.end()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-a.session.Done():
			return nil, a.session.Err()
		case <-k.refresh:
			err = k.lookAgain(ctx, a)
		case <-a.session.Changed():
			err = k.lookAgain(ctx, a)
		case <-ping.C:
			err = k.ping(ctx, a)
		case <-doubt.due:
			doubt.look()
		case other := <-doubt.found:
			if next := doubt.consider(other); next != nil {
				return next, nil
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

func (k *Keeper) ping(ctx context.Context, a attempt) error {
	if err := k.within(ctx, k.options.PingTimeout, a.session.Ping); err != nil {
		return fmt.Errorf("ping server: %w", err)
	}
	return nil
}

// lookAgain asks a server that has changed what it offers. One that keeps changing is not
// asked all the time.
func (k *Keeper) lookAgain(ctx context.Context, a attempt) error {
	err := k.within(ctx, k.options.StartTimeout, func(ctx context.Context) error {
		l, err := k.look(ctx, a.session)
		if err == nil {
			k.learned(a.how, l)
		}
		return err
	})
	if err == nil && !mux.Pause(ctx, k.options.Settle) {
		err = ctx.Err()
	}
	return err
}

func (k *Keeper) within(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}

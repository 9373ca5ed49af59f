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

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// Connection is a server to look at.
type Connection struct {
	Target mcpprobe.Target
	// Close ends the server; it returns at once.
	Close func()
	// Reason says why the server ended, or nil if it has not.
	Reason func() error
}

// Options say how a Keeper looks.
type Options struct {
	// Connect gives a fresh server.
	Connect func(ctx context.Context) (Connection, error)

	StartTimeout time.Duration // for a fresh server to tell what it offers
	PingInterval time.Duration
	PingTimeout  time.Duration
	Settle       time.Duration // between two looks at a catalogue that keeps changing
	Probe        mcpprobe.Options
	Log          logr.Logger
}

// State is what is known of the server.
type State struct {
	// Ready is true when a fresh server has answered, and stays true while
	// another one is started in place of one that died.
	Ready bool
	// Err says why not, or what went wrong last.
	Err error
	// Catalog is what the server offered when last asked; nil before the first time.
	Catalog *mcpprobe.Catalog
}

// ErrStarting is the Err of a keeper that has not asked any server yet.
var ErrStarting = errors.New("the server is starting")

// Keeper keeps a server and looks after it.
type Keeper struct {
	options Options

	mu      sync.Mutex
	state   State
	changed chan struct{} // closed and replaced with every change of state
}

// New returns a Keeper that knows nothing yet. Run makes it look.
func New(options Options) *Keeper {
	return &Keeper{options: options, state: State{Err: ErrStarting}, changed: make(chan struct{})}
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

const (
	firstBackOff = 100 * time.Millisecond
	lastBackOff  = 5 * time.Second
)

// Run keeps a server until the context ends. One that dies is replaced at once; if
// the fresh one does not answer either, the state says so, and further ones follow
// ever more slowly.
func (k *Keeper) Run(ctx context.Context) {
	backOff := time.Duration(0)
	for ctx.Err() == nil {
		answered, err := k.keepOne(ctx)
		if ctx.Err() != nil {
			return
		}
		k.options.Log.Info("Server that is looked after was lost", "answered", answered, "reason", err.Error())
		if answered {
			backOff = 0
			k.set(func(s *State) { s.Err = err })
			continue
		}
		k.set(func(s *State) { s.Ready, s.Err = false, err })
		backOff = min(max(2*backOff, firstBackOff), lastBackOff)
		select {
		case <-ctx.Done():
		case <-time.After(backOff):
		}
	}
}

// keepOne starts a server and stays with it until it fails. It says whether the
// server ever answered.
func (k *Keeper) keepOne(ctx context.Context) (answered bool, err error) {
	starting, cancel := context.WithTimeout(ctx, k.options.StartTimeout)
	defer cancel()
	connection, err := k.options.Connect(starting)
	if err != nil {
		return false, err
	}
	defer connection.Close()
	session, err := mcpprobe.Connect(starting, connection.Target, k.options.Probe)
	if err != nil {
		return false, explain(err, connection)
	}
	defer session.Close()
	if err := k.look(starting, session); err != nil {
		return false, explain(err, connection)
	}
	return true, explain(k.follow(ctx, session), connection)
}

// explain prefers the server's own end as a reason to what followed from it.
func explain(err error, connection Connection) error {
	if reason := connection.Reason(); reason != nil {
		return reason
	}
	return err
}

// look asks what the server offers.
func (k *Keeper) look(ctx context.Context, session *mcpprobe.Session) error {
	catalog, err := session.Catalog(ctx)
	if err != nil {
		return fmt.Errorf("ask server what it offers: %w", err)
	}
	k.set(func(s *State) { *s = State{Ready: true, Catalog: catalog} })
	return nil
}

// follow looks again when the server says that something has changed, and asks now
// and then whether it is alive.
func (k *Keeper) follow(ctx context.Context, session *mcpprobe.Session) error {
	ping := time.NewTicker(k.options.PingInterval)
	defer ping.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-session.Done():
			return session.Err()
		case <-session.Changed():
			if err := k.within(ctx, k.options.StartTimeout, func(ctx context.Context) error { return k.look(ctx, session) }); err != nil {
				return err
			}
			select { // a server that keeps changing is not asked all the time
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(k.options.Settle):
			}
		case <-ping.C:
			if err := k.within(ctx, k.options.PingTimeout, session.Ping); err != nil {
				return fmt.Errorf("ping server: %w", err)
			}
		}
	}
}

func (k *Keeper) within(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}

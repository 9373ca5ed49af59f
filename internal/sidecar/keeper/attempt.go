package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// attempt is the outcome of starting a server and listing what it offers: a session, or an error.
type attempt struct {
	how        opening
	connection Connection
	session    *mcpprobe.Session
	listing    listing

	reason  adapterapi.Reason
	err     error
	refused bool // the server answered initialize with an error
	certain bool // and with one that only servers without sessions use
	died    bool // the server ended by itself
}

// listing is what a server that works offers: a catalog, or the reason why there is none.
type listing struct {
	catalog    *mcpprobe.Catalog
	discovered bool // the server itself lists the protocol versions that it speaks
	reason     adapterapi.Reason
	err        error
}

// start starts a server, opens it and lists what it offers. If patiently is true, start waits for
// StartTimeout and reports a late server as silent meanwhile. Otherwise it gives a late server up.
func (k *Keeper) start(ctx context.Context, how opening, patiently bool) attempt {
	a := attempt{how: how}
	starting, cancel := context.WithTimeout(ctx, k.options.StartTimeout)
	defer cancel()
	if k.connect(starting, &a); a.err != nil {
		return a
	}
	stopWaiting := func(bool) {}
	if patiently {
		stopWaiting = k.awaitAnswer()
	} else {
		starting, cancel = context.WithTimeout(starting, k.patience())
		defer cancel()
	}
	k.open(starting, &a)
	stopWaiting(a.err == nil || a.refused)
	if a.err != nil {
		k.giveUp(&a)
	}
	return a
}

// connect gets a fresh server.
func (k *Keeper) connect(ctx context.Context, a *attempt) {
	a.connection, a.err = k.options.Connect(ctx, a.how == byDiscover)
	switch e, ok := errors.AsType[*mcpprobe.Error](a.err); {
	case a.err == nil:
		k.connected = true
	case errors.Is(a.err, ErrNoContainer):
		a.reason, a.err = adapterapi.Starting, k.noContainer()
	case errors.Is(a.err, ErrNoRoom):
		a.reason = adapterapi.NoRoom
	case ok && e.Class == mcpprobe.Timeout:
		a.reason, a.err = adapterapi.Silent, k.silent(k.patience(), a.err)
	default:
		a.reason = adapterapi.Unstartable
		if a.noteRefusal(); a.refused {
			a.reason = adapterapi.Broken
		}
	}
}

// open opens the server and lists what it offers.
func (k *Keeper) open(ctx context.Context, a *attempt) {
	a.session, a.err = mcpprobe.Connect(ctx, a.connection.Target, k.probe(a.how))
	if a.err != nil {
		a.noteRefusal()
		return
	}
	if a.how == byInitialize {
		k.set(func(s *State) { s.Opened = true })
	}
	a.listing, a.err = k.list(ctx, a.session)
}

// giveUp ends a server that does not work, and finds out why.
func (k *Keeper) giveUp(a *attempt) {
	defer a.connection.Close()
	if a.session != nil {
		a.session.Close()
	}
	if a.certain {
		a.reason = adapterapi.Broken // the answer explains everything, so there is no need to wait for the exit
		return
	}
	a.reason, a.died, a.err = explain(a.err, a.connection)
	if a.reason == adapterapi.Silent {
		a.err = k.silent(k.patience(), a.err)
	}
}

// list asks the server for its catalog. A server that offers too much, or refuses to list it, still
// works.
func (k *Keeper) list(ctx context.Context, session *mcpprobe.Session) (listing, error) {
	catalog, err := session.Catalog(ctx)
	if err == nil {
		l := listing{catalog: catalog, discovered: len(catalog.Server.ProtocolVersions) > 0}
		if k.options.Serves != nil {
			l.catalog, err = catalog.Serving(k.options.Serves(catalog.Server))
		}
		return l, err
	}
	err = fmt.Errorf("ask server what it offers: %w", err)
	switch mcpprobe.ClassOf(err) {
	case mcpprobe.TooLarge:
		return listing{reason: adapterapi.TooLarge, err: err}, nil
	case mcpprobe.Rejected:
		return listing{reason: adapterapi.Broken, err: err}, nil
	default:
		return listing{}, err
	}
}

// explain returns why a server failed: the exit of its process, or the error if the process has not
// ended by itself.
func explain(err error, connection Connection) (reason adapterapi.Reason, died bool, why error) {
	class := mcpprobe.ClassOf(err)
	patience := exitPatience
	if class == mcpprobe.Closed {
		patience = closedPatience
	}
	if exit := connection.Reason(patience); exit != nil {
		return adapterapi.Exited, true, exit
	}
	return cmp.Or(reasons[class], adapterapi.Broken), false, err
}

// How long the keeper waits for the exit of a process, which explains more than an error does. A
// process that has closed its output ends soon, but a busy machine may take a while to tell.
const (
	exitPatience   = 100 * time.Millisecond
	closedPatience = 2 * time.Second
)

// reasons are those of errors by their class. Errors of other classes mean that the server is broken.
var reasons = map[mcpprobe.Class]adapterapi.Reason{
	mcpprobe.Timeout:      adapterapi.Silent,
	mcpprobe.Closed:       adapterapi.Exited,
	mcpprobe.Unreachable:  adapterapi.Unstartable,
	mcpprobe.Unauthorized: adapterapi.Unauthorized,
	mcpprobe.Busy:         adapterapi.Busy,
}

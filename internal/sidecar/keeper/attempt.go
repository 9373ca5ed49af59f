package keeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// attempt is what came of starting a server and asking what it offers: a session, or
// why there is none.
type attempt struct {
	how        opening
	connection Connection
	session    *mcpprobe.Session
	listed     listed

	reason  adapterapi.Reason
	err     error
	refused bool // it was asked to initialize, and answered that it does not
	certain bool // and as only servers without sessions do
	died    bool // it ended by itself
}

// listed is what came of asking a server what it offers: a catalogue, or why there is
// none although the server works.
type listed struct {
	catalog    *mcpprobe.Catalog
	discovered bool // the server itself lists the protocol versions that it speaks
	reason     adapterapi.Reason
	err        error
}

// start starts a server, opens it and asks what it offers. Without patience, one that
// does not answer is given up when others would only be called silent.
func (k *Keeper) start(ctx context.Context, how opening, patiently bool) attempt {
	a := attempt{how: how}
	starting, cancel := context.WithTimeout(ctx, k.options.StartTimeout)
	defer cancel()
	if k.connect(starting, &a); a.err != nil {
		return a
	}
	waitIsOver := func(bool) {}
	if patiently {
		waitIsOver = k.awaitAnswer()
	} else {
		starting, cancel = context.WithTimeout(starting, k.patience())
		defer cancel()
	}
	k.open(starting, &a)
	waitIsOver(a.err == nil || a.refused)
	if a.err != nil {
		k.giveUp(&a)
	}
	return a
}

// connect gets the server.
func (k *Keeper) connect(ctx context.Context, a *attempt) {
	a.connection, a.err = k.options.Connect(ctx, a.how == byDiscover)
	switch {
	case a.err == nil:
	case errors.Is(a.err, ErrNoRoom):
		a.reason = adapterapi.NoRoom
	default:
		a.reason = adapterapi.Unstartable
		if a.noteRefusal(); a.refused {
			a.reason = adapterapi.Broken
		}
	}
}

// open speaks to the server and asks what it offers.
func (k *Keeper) open(ctx context.Context, a *attempt) {
	a.session, a.err = mcpprobe.Connect(ctx, a.connection.Target, k.probe(a.how))
	if a.err != nil {
		a.noteRefusal()
		return
	}
	if a.how == byInitialize {
		k.set(func(s *State) { s.Opened = true })
	}
	a.listed, a.err = k.look(ctx, a.session)
}

// giveUp ends a server that does not work, and says why.
func (k *Keeper) giveUp(a *attempt) {
	defer a.connection.Close()
	if a.session != nil {
		a.session.Close()
	}
	if a.certain {
		a.reason = adapterapi.Broken // its answer says all, so it is not waited for its end
		return
	}
	if end := a.connection.Reason(); end != nil {
		a.died, a.reason, a.err = true, adapterapi.Exited, end
		return
	}
	a.reason = reasonOf(a.err)
	if a.reason == adapterapi.Silent {
		a.err = k.silence(k.patience(), a.err)
	}
}

// look asks what the server offers. One that offers too much, or refuses to tell, has
// answered all the same.
func (k *Keeper) look(ctx context.Context, session *mcpprobe.Session) (listed, error) {
	catalog, err := session.Catalog(ctx)
	if err == nil {
		return k.serving(catalog)
	}
	err = fmt.Errorf("ask server what it offers: %w", err)
	switch mcpprobe.ClassOf(err) {
	case mcpprobe.TooLarge:
		return listed{reason: adapterapi.TooLarge, err: err}, nil
	case mcpprobe.Rejected:
		return listed{reason: adapterapi.Broken, err: err}, nil
	default:
		return listed{}, err
	}
}

// serving says in a catalogue which protocol versions clients can use.
func (k *Keeper) serving(own *mcpprobe.Catalog) (listed, error) {
	l := listed{catalog: own, discovered: len(own.Server.ProtocolVersions) > 0}
	if k.options.Serves == nil {
		return l, nil
	}
	var err error
	l.catalog, err = own.Serving(k.options.Serves(own.Server))
	return l, err
}

// explain says why a server failed. It prefers the server's own end to what followed
// from it; one that ended because it was done with failed for another reason.
func explain(err error, connection Connection) (adapterapi.Reason, error) {
	if end := connection.Reason(); end != nil {
		return adapterapi.Exited, end
	}
	return reasonOf(err), err
}

func reasonOf(err error) adapterapi.Reason {
	switch mcpprobe.ClassOf(err) {
	case mcpprobe.Timeout:
		return adapterapi.Silent
	case mcpprobe.Closed:
		return adapterapi.Exited
	case mcpprobe.Unreachable:
		return adapterapi.Unstartable
	case mcpprobe.Unauthorized:
		return adapterapi.Unauthorized
	case mcpprobe.Busy:
		return adapterapi.Busy
	case mcpprobe.Rejected, mcpprobe.Protocol, mcpprobe.TooLarge, mcpprobe.Canceled:
	}
	return adapterapi.Broken
}

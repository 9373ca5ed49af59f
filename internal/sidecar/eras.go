package sidecar

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/option"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
	"github.com/slipway-mcp/slipway/internal/sidecar/translate/tolegacy"
	"github.com/slipway-mcp/slipway/internal/sidecar/translate/tomodern"
)

// eras serves clients of the era that the server does not speak, and those without
// sessions in any case.
type eras struct {
	stateless *stateless.Endpoint // of clients without sessions
	below     *stateless.Endpoint // of sessions that are translated
	modern    *tomodern.Server    // for clients without sessions, made of servers with them
	legacy    tolegacy.Metrics    // of sessions that are translated
}

// endpoints are the different ones of both.
func (e *eras) endpoints() []*stateless.Endpoint {
	if e.below == e.stateless {
		return []*stateless.Endpoint{e.stateless}
	}
	return []*stateless.Endpoint{e.stateless, e.below}
}

// drain ends what there is for clients of both eras, once clients without sessions are
// refused. Sessions that are translated need theirs until they are drained themselves.
func (e *eras) drain(ctx context.Context, sessions func(context.Context)) {
	sessions(ctx)
	var draining sync.WaitGroup
	for _, endpoint := range e.endpoints() {
		draining.Go(func() { endpoint.Drain(ctx) })
	}
	draining.Wait()
}

func (e *eras) close() {
	for _, endpoint := range e.endpoints() {
		endpoint.Close()
	}
}

type (
	withSession    func(context.Context, *caller.Caller) (mux.Server, error)
	withoutSession func(context.Context) (mux.Server, error)
)

// newEras serves clients without sessions by servers that have none, and makes what they
// need of servers that have some where there is nothing else.
func (a *Adapter) newEras(era stateless.Era, without withoutSession, with withSession) *eras {
	e := &eras{modern: a.newForModern(with)}
	options := a.statelessOptions(era, without)
	if a.config.Translates() {
		options.Translate = func() stateless.Translator { return e.modern }
	}
	e.stateless = stateless.New(options)
	e.below = e.stateless
	return e
}

func (a *Adapter) statelessOptions(era stateless.Era, acquire withoutSession) stateless.Options {
	return stateless.Options{
		Acquire: acquire, Era: era, TranslateSetting: a.config.Names.Of(option.StatelessClients),
		Limits: stateless.Limits{
			Calls: statelessCalls, Listens: statelessListens, Crowd: statelessCrowd, Processes: statelessMost,
			SendingBytes: 2 * int(a.config.BodyBytes), BacklogBytes: pendingBytes, TotalBytes: 2*a.config.LineBytes + pendingBytes, Memory: a.memory,
			StartTimeout: a.config.OpenTimeout, Silence: discoverSilence, CallTimeout: a.config.CallTimeout, IdleTimeout: a.config.IdleTimeout,
			StuckTimeout: stuckTimeout, CommitAfter: statelessCommit, WriteTimeout: front.WriteTimeout, KeepAlive: front.KeepAliveInterval,
		},
		Log: a.config.Log,
	}
}

// newForModern lets clients without sessions have as many processes as there may be
// sessions: neither kind of client can lock the other out.
func (a *Adapter) newForModern(acquire withSession) *tomodern.Server {
	return tomodern.New(tomodern.Options{
		Acquire: acquire, Serves: func(spoken string) []string {
			return a.serves(mcpprobe.Server{ProtocolVersion: spoken}, stateless.Legacy)
		},
		OfferRoots: a.config.OfferRoots, Log: a.config.Log,
		Limits: tomodern.Limits{
			Children: a.config.MaxSessions, PerKey: perKey(a.config.MaxSessions), KeysPerPrincipal: keysPerPrincipal, URIs: subscriptions,
			StartTimeout: a.config.OpenTimeout, LeaseTimeout: leaseTimeout, IdleTimeout: a.config.IdleTimeout, EvictIdle: evictIdle,
			ParkTTL: a.config.ParkTimeout, StuckTimeout: stuckTimeout, CancelGrace: cancelGrace, Memory: a.memory,
		},
	})
}

// keysPerPrincipal is for clients that can do different things, of which few people have
// more than one or two.
const keysPerPrincipal = 4

// perKey is how many processes there may be for clients that cannot be told apart. Nobody
// has all of them, so that there is something left for the next; two are for a call that
// needs another one to go on, where there are as many.
func perKey(children int) int { return max(children/2, min(children, 2)) }

// eitherWay opens sessions with the server where it has some, and else makes them of what
// it has.
func (a *Adapter) eitherWay(native opener) opener {
	translated := a.numbered(a.openTranslated)
	return func(ctx context.Context, from *caller.Caller) (*session.Session, error) {
		switch hasSessions, err := a.hasSessions(ctx); {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", notStarted, err)
		case hasSessions:
			return native(ctx, from)
		default:
			return translated(ctx, from)
		}
	}
}

// hasSessions says whether the server itself has sessions, which the keeper finds out
// from the first server that answers. Whoever comes before that waits: one that is sent to
// a server without sessions is refused. If there is nothing to be found out in half of the
// time that there is, the client learns from the server itself what is wrong with it.
func (a *Adapter) hasSessions(ctx context.Context) (bool, error) {
	if a.config.Era != stateless.Auto {
		return a.config.Era == stateless.Legacy, nil
	}
	waiting, cancel := context.WithTimeout(ctx, a.config.OpenTimeout/2)
	defer cancel()
	state, err := a.await(waiting, func(s *keeper.State) bool { return s.Ready || s.Opened || hasFailed(s.Reason) })
	if err != nil && ctx.Err() == nil {
		return true, nil
	}
	return !state.Stateless, err
}

// hasFailed says whether a server is known not to work, and not only not known to work.
func hasFailed(reason adapterapi.Reason) bool {
	switch reason {
	case adapterapi.Starting, adapterapi.Silent, adapterapi.NoRoom, adapterapi.Busy:
		return false
	case adapterapi.Unstartable, adapterapi.Exited, adapterapi.Unauthorized, adapterapi.TooLarge, adapterapi.Broken:
	}
	return true
}

// looked is what the keeper knows once it has looked for the first time, or has waited
// for that for a while.
func (a *Adapter) looked(ctx context.Context) (keeper.State, error) {
	return a.await(ctx, func(s *keeper.State) bool { return s.Reason != adapterapi.Starting })
}

// await waits until the keeper knows enough.
func (a *Adapter) await(ctx context.Context, enough func(*keeper.State) bool) (keeper.State, error) {
	for {
		state, changed := a.keeper.State()
		if enough(&state) {
			return state, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return state, fmt.Errorf("wait for the server to say what it speaks: %w", ctx.Err())
		}
	}
}

// openTranslated opens a session that the server knows nothing of.
func (a *Adapter) openTranslated(context.Context, *caller.Caller) (*session.Session, error) {
	server := a.newForLegacy(nil)
	opened := session.New(server, a.sessionLimits(), &a.metrics)
	server.Serve(takeOver(opened), opened.End)
	return opened, nil
}

// takeOver delivers what an endpoint without sessions had room for.
func takeOver(opened *session.Session) func(session.Message) {
	return func(message session.Message) {
		message.Charged = true
		opened.Deliver(message)
	}
}

// newForLegacy makes a server for one session. Requests of the session that no client has
// sent are made on behalf of last, if it is not nil.
func (a *Adapter) newForLegacy(last *atomic.Pointer[caller.Caller]) *tolegacy.Server {
	e := a.backend.eras
	return tolegacy.New(tolegacy.Options{
		Modern: modern{e.below, last}, Limits: tolegacy.DefaultLimits(), Metrics: &e.legacy, Log: a.config.Log,
	})
}

// modern is the endpoint as tolegacy sees it.
type modern struct {
	endpoint *stateless.Endpoint
	last     *atomic.Pointer[caller.Caller]
}

func (m modern) Call(ctx context.Context, request session.Message) (tolegacy.Exchange, error) {
	if request.From == nil && m.last != nil {
		request.From = m.last.Load()
	}
	call, err := m.endpoint.Call(ctx, request)
	if err != nil {
		return nil, err // and no Call that is nil
	}
	return call, nil
}

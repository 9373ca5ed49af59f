package keeper

import (
	"context"
	"errors"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
)

// opening is how a fresh server is spoken to first. A process takes that for the era of
// all that follows (L-35), so that another way needs another process.
type opening uint8

const (
	// byInitialize: as clients with sessions begin, and nearly every server understands.
	byInitialize opening = iota
	// byDiscover: by server/discover alone, as clients without sessions begin.
	byDiscover
	// byEither: by server/discover, and by initialize if the server has no answer to
	// that. It is for servers that speak HTTP, to which the order does not matter.
	byEither
)

// first is how to begin with a server that nothing is known of.
func (o *Options) first() opening {
	switch {
	case o.Probe.SkipDiscover:
		return byInitialize
	case o.Pinned:
		return byDiscover
	default:
		return byEither
	}
}

// probe is how to ask a server that is opened in one way.
func (k *Keeper) probe(how opening) mcpprobe.Options {
	options := k.options.Probe
	options.SkipDiscover, options.SkipInitialize = how == byInitialize, how == byDiscover
	options.Junk = k.noise.hear
	return options
}

// worked remembers a way to open a server that works.
func (k *Keeper) worked(a attempt) {
	switch {
	case k.options.Pinned:
	case k.options.first() == byInitialize:
		// One that refuses to initialize for a reason of its own today may have had
		// sessions yesterday, so the next one is asked again.
		k.hasSessions = k.hasSessions || a.how == byInitialize
		if a.how == byDiscover && a.certain {
			k.opening = byDiscover
		}
	case a.listed.discovered:
		k.opening = byEither
	}
}

// failed has the next server be asked in another way, if that can help.
func (k *Keeper) failed(a attempt) {
	switch {
	case k.options.Pinned || a.reason != adapterapi.Exited && a.reason != adapterapi.Broken:
	case k.options.first() == byInitialize || k.opening == byInitialize:
		k.opening = k.options.first()
	case a.died:
		// Some servers end when the first request is not initialize. Others fail for
		// reasons of their own, so the one after it is asked as before. Those that go on
		// were asked in both ways.
		k.opening = byInitialize
	}
}

// mayHaveNone says whether a server that refuses to initialize may be one without
// sessions. One that had a session before is not.
func (k *Keeper) mayHaveNone(a attempt) bool {
	return a.refused && a.how == byInitialize && !k.options.Pinned && !k.hasSessions && k.options.first() == byInitialize
}

// without asks a fresh server in the other way after one has refused to initialize. If
// that does not work either, the refusal tells more, unless only a server without
// sessions would have refused like that.
func (k *Keeper) without(ctx context.Context, refusal attempt) attempt {
	k.options.Log.V(1).Info("Server refuses to initialize, so a fresh one is asked whether it works without", "error", fault.Brief(refusal.err))
	second := k.start(ctx, byDiscover, refusal.certain)
	second.certain = refusal.certain
	if second.err == nil || second.certain || second.reason == adapterapi.NoRoom {
		return second
	}
	return refusal
}

// noteRefusal looks whether the error is the server's answer to initialize. What came
// in place of an answer, until there was no more time, is none.
func (a *attempt) noteRefusal() {
	e, ok := errors.AsType[*mcpprobe.Error](a.err)
	if !ok || a.how != byInitialize || errors.Is(e, context.DeadlineExceeded) {
		return
	}
	a.refused = e.Class == mcpprobe.Rejected || e.Class == mcpprobe.Protocol
	// Servers without sessions refuse to initialize by these (L-27). Those that have some
	// know the method, and answer with another revision if they do not know the one that
	// they are asked for (L-02).
	a.certain = a.refused && (e.Code == rpc.CodeMethodNotFound || e.Code == rpc.CodeUnsupportedRevision)
}

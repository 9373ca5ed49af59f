package keeper

import (
	"context"
	"errors"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
)

// opening is the first request to a fresh server. It decides the era of a process (L-35), so that
// another opening needs another process.
type opening uint8

const (
	// byInitialize opens a session. Nearly every server supports that.
	byInitialize opening = iota
	// byDiscover sends server/discover alone, as clients without sessions do.
	byDiscover
	// byEither sends server/discover, and initialize if the server does not answer that. It is for
	// servers that speak HTTP, for which the order does not matter.
	byEither
)

// first is the opening for a server that the keeper knows nothing about.
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

// probe returns the options of mcpprobe for an opening.
func (k *Keeper) probe(how opening) mcpprobe.Options {
	options := k.options.Probe
	options.SkipDiscover, options.SkipInitialize = how == byInitialize, how == byDiscover
	options.Junk = k.noteStray
	return options
}

// noteSuccess records the opening of a server that works, for the next server.
func (k *Keeper) noteSuccess(a attempt) {
	switch {
	case k.options.Pinned:
	case k.options.first() == byInitialize:
		// A server with sessions may refuse to initialize for a while, so that a refusal alone does
		// not change the opening.
		k.hasSessions = k.hasSessions || a.how == byInitialize
		if a.how == byDiscover && a.certain {
			k.opening = byDiscover
		}
	case a.listing.discovered:
		k.opening = byEither
	}
}

// noteFailure chooses another opening for the next server, if that can help.
func (k *Keeper) noteFailure(a attempt) {
	switch {
	case k.options.Pinned || a.reason != adapterapi.Exited && a.reason != adapterapi.Broken:
	case k.options.first() == byInitialize || k.opening == byInitialize:
		k.opening = k.options.first()
	case a.died:
		// Some servers exit when the first request is not initialize. A server that lives on has got
		// both requests.
		k.opening = byInitialize
	}
}

// mayBeStateless reports whether a server that refuses to initialize may have no sessions. A server
// that had a session before has sessions.
func (k *Keeper) mayBeStateless(a attempt) bool {
	return a.refused && a.how == byInitialize && !k.options.Pinned && !k.hasSessions && k.options.first() == byInitialize
}

// tryStateless opens a fresh server by server/discover, after one has refused to initialize. If that
// fails, too, it returns the refusal, which explains more, unless the refusal proves that the server
// has no sessions.
func (k *Keeper) tryStateless(ctx context.Context, refusal attempt) attempt {
	k.options.Log.V(1).Info("Server refuses to initialize, so a fresh one is asked whether it works without", "error", fault.Brief(refusal.err))
	second := k.start(ctx, byDiscover, refusal.certain)
	second.certain = refusal.certain
	if second.err == nil || second.certain || second.reason == adapterapi.NoRoom {
		return second
	}
	return refusal
}

// noteRefusal records whether the error is the server's answer to initialize. A timeout is no answer,
// even if the server has sent other messages.
func (a *attempt) noteRefusal() {
	e, ok := errors.AsType[*mcpprobe.Error](a.err)
	if !ok || a.how != byInitialize || errors.Is(e, context.DeadlineExceeded) {
		return
	}
	a.refused = e.Class == mcpprobe.Rejected || e.Class == mcpprobe.Protocol
	// Servers without sessions refuse initialize with these codes (L-27). A server with sessions knows
	// the method, and answers an unknown revision with one that it knows (L-02).
	a.certain = a.refused && (e.Code == rpc.CodeMethodNotFound || e.Code == rpc.CodeUnsupportedRevision)
}

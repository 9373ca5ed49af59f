package news

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

const (
	// mostPending bounds the resources that have changed and of which the other pod has not read yet, and pendingBytes the
	// length of their URIs. Past it, everything may have changed.
	mostPending  = 1024
	pendingBytes = 256 << 10
)

// heard is what has changed here and another pod has not been told yet. It is a set, so that a pod that reads slowly
// holds no process back. It is the subscription.Observer of a stream, and its front.Source.
type heard struct {
	mu      sync.Mutex
	pending []pending // of each Want
	count   int       // of URIs, of all
	bytes   int       // of these
	ended   bool
	ready   chan struct{}
}

type pending struct {
	lists subscription.Set
	uris  map[string]struct{}
	all   bool
}

func newHeard(wants int) *heard {
	return &heard{pending: make([]pending, wants), ready: make(chan struct{}, 1)}
}

// Changed implements subscription.Observer.
func (h *heard) Changed(of int, method, uri string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.pending[of]
	list := subscription.ListOf(method)
	_, known := p.uris[uri]
	switch {
	case p.all:
	case list >= 0:
		p.lists[list] = true
	case method != subscription.MethodUpdated || known:
	case len(uri) > uriBytes || h.count >= mostPending || h.bytes+len(uri) > pendingBytes:
		h.missedLocked(p)
	default:
		if p.uris == nil {
			p.uris = map[string]struct{}{}
		}
		p.uris[uri] = struct{}{}
		h.count++
		h.bytes += len(uri)
	}
	h.signal()
}

// Missed implements subscription.Observer.
func (h *heard) Missed(of int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.missedLocked(&h.pending[of])
	h.signal()
}

func (h *heard) missedLocked(p *pending) {
	h.forgetLocked(p)
	*p = pending{all: true}
}

func (h *heard) forgetLocked(p *pending) {
	h.count -= len(p.uris)
	for uri := range p.uris {
		h.bytes -= len(uri)
	}
}

// Ended implements subscription.Observer.
func (h *heard) Ended() { h.end() }

// end is Ended. It reports whether the Observer had not ended before.
func (h *heard) end() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := !h.ended
	h.ended = true
	h.signal()
	return first
}

func (h *heard) signal() {
	select {
	case h.ready <- struct{}{}:
	default:
	}
}

// Gather implements front.Source.
func (h *heard) Gather(to *front.Events) (more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for of := range h.pending {
		p := &h.pending[of]
		if !p.all && p.lists == (subscription.Set{}) && len(p.uris) == 0 {
			continue
		}
		for _, e := range p.events(of) {
			to.Append(rpc.Event{Data: encode(&e)})
		}
		h.forgetLocked(p)
		*p = pending{}
	}
	return !h.ended
}

// events are as many as are needed for none to be too large.
func (p *pending) events(of int) []event {
	if p.all {
		return []event{{Of: of, All: true}}
	}
	all := []event{{Of: of, Lists: p.lists.Names()}}
	size := 0
	for _, uri := range slices.Sorted(maps.Keys(p.uris)) {
		if size > 0 && size+len(uri) > eventBytes {
			all, size = append(all, event{Of: of}), 0
		}
		last := &all[len(all)-1]
		last.URIs = append(last.URIs, uri)
		size += len(uri)
	}
	return all
}

// Wait implements front.Source.
func (h *heard) Wait(ctx context.Context, _ *front.Events) {
	select {
	case <-h.ready:
	case <-ctx.Done():
	}
}

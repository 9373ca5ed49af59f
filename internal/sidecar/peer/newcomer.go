package peer

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// newcomer is a request that opens a session.
type newcomer struct {
	placer *Placer
	w      http.ResponseWriter
	r      *edge.Request
	in     *session.Registry
	until  time.Time // then its patience is over
}

// lastPart is the part of the patience in which idle sessions of this pod may end for a newcomer that other pods could
// have taken. It is the last one. Most clients give up when all of the patience is over.
const lastPart = 10

// find finds a slot. If it returns neither a slot nor an error, another pod has answered.
//
// A free slot here comes first, unless another pod has its process ready, then one of another pod, then one that becomes
// free while the client waits, and only then that of an idle session. Without other pods it is as if there was no list.
// Pods that do not answer take time from the same patience: the last of them get what is left of it.
func (n *newcomer) find() (*session.Slot, error) {
	if self := n.placer.standing(); self.rank() == wanted && !self.slow {
		if slot := n.free(); slot != nil {
			return slot, nil
		}
	}
	next := n.placer.options.List.Next()
	if len(n.placer.others()) == 0 {
		return n.in.Reserve(n.r.Context(), &n.r.Caller)
	}
	last := n.placer.options.Patience / lastPart
	until := n.until.Add(-last)
	if slot, placed := n.tryAll(until); placed {
		return slot, nil
	}
	if slot, placed := n.wait(until, next); placed {
		return slot, nil
	}
	return n.in.ReserveOn(n.r.Context(), &n.r.Caller, places.Terms{Patience: min(last, time.Until(n.until)), Evicts: true})
}

// free takes a slot of this pod, if one is free.
func (n *newcomer) free() *session.Slot {
	slot, err := n.in.ReserveOn(n.r.Context(), &n.r.Caller, places.Terms{})
	if err != nil {
		return nil
	}
	return slot
}

// tryAll tries one place for the session after the other, and connects to no pod after a time. It reports whether the
// session has a place; without a slot that is at another pod.
func (n *newcomer) tryAll(until time.Time) (slot *session.Slot, placed bool) {
	self, others := n.placer.standing(), n.placer.others()
	self.free, self.closed = true, n.in.Draining().Err() != nil
	for _, i := range place(&self, others, rand.IntN) {
		if i != here {
			placed = n.offer(&others[i], false, until)
		} else if slot = n.free(); slot != nil {
			placed = true
		}
		if placed {
			return slot, true
		}
	}
	return nil, false
}

// tryFree does so with the other pods that have a free slot, for all that is known. All newcomers that wait do this at
// the same time, and count what the others have sent.
func (n *newcomer) tryFree(until time.Time) bool {
	self, others := n.placer.standing(), n.placer.others()
	for _, i := range place(&self, others, rand.IntN) {
		if n.offer(&others[i], true, until) {
			return true
		}
	}
	return false
}

// wait waits until then for a slot of this pod, and for a list with others that have one. At the end it tries all pods
// once more, because no list says that a session has just ended. These attempts get half of the time that is left. The
// other half is for an idle session to end. If this pod begins to drain meanwhile, the newcomer tries the others at once,
// and goes on to wait for one of them. A drain waits for its newcomers. One that comes later does not wait.
func (n *newcomer) wait(until time.Time, next <-chan struct{}) (slot *session.Slot, placed bool) {
	if n.in.Draining().Err() != nil {
		return nil, false
	}
	calls := &n.placer.options.Router.calls
	calls.begin()
	defer calls.end()
	q := n.queue()
	defer q.leave()
	over := time.NewTimer(time.Until(until))
	defer over.Stop()
	reserved := q.reserved
	for {
		select {
		case got := <-reserved:
			q.left, reserved = true, nil
			if !errors.Is(got.err, fault.ErrDraining) {
				return got.slot, got.slot != nil
			}
			if slot, placed = n.tryAll(until); placed {
				return slot, true
			}
		case <-n.r.Context().Done():
			return nil, false
		case <-next:
			next = n.placer.options.List.Next()
			if n.tryFree(until) {
				return nil, true
			}
		case <-over.C:
			q.leave()
			return n.tryAll(until.Add(n.until.Sub(until) / 2))
		}
	}
}

// queue is a wait for a slot of this pod. No session ends for it.
type queue struct {
	reserved chan reservation
	cancel   context.CancelFunc
	left     bool
}

// reservation is a slot, or why there is none.
type reservation struct {
	slot *session.Slot
	err  error
}

func (n *newcomer) queue() *queue {
	ctx, cancel := context.WithCancel(n.r.Context())
	q := &queue{reserved: make(chan reservation, 1), cancel: cancel}
	go func() {
		slot, err := n.in.ReserveOn(ctx, &n.r.Caller, places.Terms{Patience: n.placer.options.Patience})
		q.reserved <- reservation{slot, err}
	}()
	return q
}

// leave ends the wait. A slot that came meanwhile is for others.
func (q *queue) leave() {
	q.cancel()
	if q.left {
		return
	}
	q.left = true
	if got := <-q.reserved; got.slot != nil {
		got.slot.Release()
	}
}

// offer asks another pod to take the session, if that pod can be connected to until then. It reports whether the request
// is answered, because the pod has begun with it, or may have.
func (n *newcomer) offer(to *other, mustFindRoom bool, until time.Time) bool {
	router, left := n.placer.options.Router, time.Until(until)
	if left <= 0 || !router.mayTry(to.Owner.UID) || !n.placer.loads.send(to, mustFindRoom, time.Now()) {
		return false
	}
	router.calls.begin()
	defer router.calls.end()
	header := outgoing(n.r.Header, n.r.RemoteAddr, &n.r.Caller)
	header[headerPlace] = []string{placeIfFree}
	p := passage{router: router, w: n.w, r: n.r, owner: to.Owner, what: "session", request: relay.Request{
		Method: n.r.Method, Target: n.r.URL.RequestURI(), Host: n.r.Host, Header: header,
		Body: n.r.Body, Client: n.r.Caller.ShareKey(), Once: true, ConnectTimeout: left,
	}}
	answer := &offered{tentative: tentative{ResponseWriter: n.w, header: http.Header{}}}
	answer.drops = answer.isRefusal
	answer.begun = sync.OnceFunc(func() {
		n.placer.loads.answered(to, answer.said, time.Now())
		if !answer.dropped {
			n.placer.placed[Peer].Add(1)
		}
	})
	err := router.options.Relay.Forward(n.r.Context(), answer, to.Owner, &p.request)
	if failed, ok := errors.AsType[*relay.DialError](err); ok {
		n.placer.loads.fail(to, failed.Outcome, time.Now())
		router.judge(to.Owner, failed.Outcome, 1, false)
		return false
	}
	answer.begun()
	if err == nil || errors.Is(err, relay.ErrCut) {
		router.notes.answered(to.Owner.UID)
	}
	if answer.dropped {
		return false
	}
	n.r.PassedOn()
	if errors.Is(err, relay.ErrLost) {
		front.Refuse(n.w, http.StatusBadGateway, nil, rpc.CodeInternal, "the pod that was to open the session did not answer; whether it has begun is not known")
		return true
	}
	p.finish(err)
	return true
}

// offered is the answer of a pod that was asked to take a session. It drops a refusal.
type offered struct {
	tentative
	said  *Load
	begun func() // called when the answer begins: that of HTTP+SSE lasts as long as the session
}

// WriteHeader implements http.ResponseWriter.
func (o *offered) WriteHeader(status int) {
	o.tentative.WriteHeader(status)
	o.begun()
}

func (o *offered) isRefusal(int) bool {
	report, ok := takeReport(o.header)
	if ok {
		o.said = &report.Load
	}
	return ok && report.refused
}

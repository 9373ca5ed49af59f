package peer

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// homeCheck is how soon this pod finds out that a home can be reached again, or that the manager has renewed a list whose
// lease was over. Neither takes another list.
const homeCheck = 5 * time.Second

// listens are the subscriptions that this pod answers, or passes on, for groups. When another pod becomes the home of its
// group, a subscription hears of nothing any more, because the group's requests change a state at another pod. So this
// pod ends it without a result: to clients that is a connection that broke, after which they subscribe again.
type listens struct {
	mu   sync.Mutex
	open map[*listen]struct{}
	none chan struct{} // closed when the last one is over
}

type listen struct {
	group uint64
	home  [16]byte // that has the subscription; zero until that is known. Guarded by the mutex of listens.
	end   context.CancelCauseFunc
}

func isListen(r *edge.Request) bool {
	if r.Batch || len(r.Messages) != 1 {
		return false
	}
	e := &r.Messages[0].Envelope
	return e.Kind == rpc.Request && string(e.Method) == subscription.MethodListen
}

// listenByGroup is ByGroup for a subscription of a group.
func (t *Router) listenByGroup(w http.ResponseWriter, r *edge.Request, homes homes, group uint64) bool {
	if t.gave(r) {
		return true
	}
	ctx, l := t.listen(r.Context(), group)
	if first := homes.next(group, nil); first != nil && first.owner.UID != t.options.Self.UID {
		p := t.newGroupPassage(w, r, first)
		p.request.Stream, p.listen = true, l
		streaming, leave := t.untilDrain(ctx)
		defer leave()
		if !p.toHome(streaming, homes, group) {
			return false
		}
	}
	t.listens.isAt(l, t.options.Self.UID)
	r.Request = r.WithContext(ctx)
	return true
}

// listen returns a context for a subscription, which ends with fault.ErrMoved when the group has another home.
func (t *Router) listen(ctx context.Context, group uint64) (context.Context, *listen) {
	of, end := context.WithCancelCause(ctx)
	l := &listen{group: group, end: end}
	if none := t.listens.add(l); none != nil {
		go t.followHomes(none)
	}
	context.AfterFunc(ctx, func() { t.listens.remove(l) })
	return of, l
}

// add returns a channel if the subscription is the only one. It closes when there is none.
func (s *listens) add(l *listen) (none <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) == 0 {
		s.open, s.none = map[*listen]struct{}{}, make(chan struct{})
		none = s.none
	}
	s.open[l] = struct{}{}
	return none
}

func (s *listens) remove(l *listen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.open, l); len(s.open) == 0 {
		close(s.none)
	}
}

func (s *listens) isAt(l *listen, home [16]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.home = home
}

// homes returns the home of each subscription that has one.
func (s *listens) homes() map[*listen][16]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := make(map[*listen][16]byte, len(s.open))
	for l := range s.open {
		if l.home != [16]byte{} {
			at[l] = l.home
		}
	}
	return at
}

// followHomes ends subscriptions whose groups have moved, until there is none.
func (t *Router) followHomes(none <-chan struct{}) {
	tick := time.NewTicker(homeCheck)
	defer tick.Stop()
	for {
		next := t.options.Next() // before the list is read, so that none is missed
		t.endMoved()
		select {
		case <-none:
			return
		case <-t.draining.Done(): // which ends all of them
			return
		case <-next:
		case <-tick.C:
		}
	}
}

// endMoved ends the subscriptions of which a request of the same group would reach another pod now.
func (t *Router) endMoved() {
	homes := t.listed()
	tried := map[[16]byte]bool{}
	for l, at := range t.listens.homes() {
		for home := homes.next(l.group, nil); home != nil && home.owner.UID != at; home = homes.next(l.group, home) {
			if t.takesGroups(home.owner, tried) {
				l.end(fault.ErrMoved)
				break
			}
		}
	}
}

// takesGroups reports whether this pod would pass requests of groups on to a home. It tries each once.
func (t *Router) takesGroups(home sessionid.Owner, tried map[[16]byte]bool) bool {
	if home.UID == t.options.Self.UID {
		return true
	}
	takes, known := tried[home.UID]
	if !known {
		takes = t.mayTry(home.UID) && t.try(home, false) == connected
		tried[home.UID] = takes
	}
	return takes
}

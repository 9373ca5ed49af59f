package peer

import (
	"context"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
)

// ByGroup implements edge.Locator. One pod keeps the state for a group of callers: the first home of the group. Without a
// list that is this pod. If a home cannot be reached, the next one takes its place, as if the list had lost it, and
// this pod if there is none. All homes share one patience: when it is over, the client gets 503. A home that refuses the
// request has answered it: another home would begin with a second state.
func (t *Router) ByGroup(w http.ResponseWriter, r *edge.Request, of func(*edge.Request) string) bool {
	homes := t.listed()
	listens := isListen(r) // which may last until there are other homes
	if !listens && (len(homes) == 0 || len(homes) == 1 && homes[0].owner.UID == t.options.Self.UID) {
		return true
	}
	name := of(r)
	if name == "" {
		return true
	}
	group := digestOf(name)
	if listens {
		return t.listenByGroup(w, r, homes, group)
	}
	first := homes.next(group, nil)
	if first.owner.UID == t.options.Self.UID || t.gave(r) {
		return true
	}
	t.calls.begin()
	defer t.calls.end()
	return t.newGroupPassage(w, r, first).toHome(r.Context(), homes, group)
}

func (t *Router) newGroupPassage(w http.ResponseWriter, r *edge.Request, first *home) *passage {
	p := t.newPassage(w, r, first.owner, r.Body)
	p.moves, p.what, p.id = true, "request", r.Messages[0].Envelope.ID.Of(r.Messages[0].Bytes)
	return p
}

// toHome passes the request on to the first home of its group that can be reached. It reports whether this pod answers
// instead.
func (p *passage) toHome(ctx context.Context, homes homes, group uint64) bool {
	t := p.router
	p.request.Begun = p.begun
	until := time.Now().Add(patience)
	for home := homes.next(group, nil); home != nil && home.owner.UID != t.options.Self.UID; home = homes.next(group, home) {
		if !t.mayTry(home.owner.UID) {
			continue
		}
		p.owner = home.owner
		if p.listen != nil {
			t.listens.isAt(p.listen, home.owner.UID)
		}
		if !p.run(ctx, until) {
			return false
		}
	}
	return true
}

// gave reports whether the request goes on with a state that this pod gave.
func (t *Router) gave(r *edge.Request) bool {
	owner, ok := t.options.State(r)
	return ok && owner.UID == t.options.Self.UID
}

// listedHomes are the homes of one list.
type listedHomes struct {
	list  *roster.Ready
	homes homes
}

// listed returns the homes of the list that counts. There are none without one.
func (t *Router) listed() homes {
	list := t.options.Ready()
	if list == nil {
		return nil
	}
	known := t.homes.Load()
	if known == nil || known.list != list {
		known = &listedHomes{list, homesOf(list.Pods)}
		t.homes.Store(known)
	}
	return known.homes
}

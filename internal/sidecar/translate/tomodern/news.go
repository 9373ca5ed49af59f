package tomodern

import (
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// receiveNews gives a change to all of the group's clients that asked for it, whichever
// of its processes it is seen at.
func (w *worker) receiveNews(method string, m session.Message) {
	if method != subscription.MethodUpdated && subscription.ListOf(method) < 0 {
		w.server.metrics.UnroutedMessages.Inc()
		return
	}
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if method == subscription.MethodToolsChanged {
		w.group.taskTools.Outdate()
	}
	uri := string(m.Envelope.URI)
	for l := range w.group.listens {
		if l.told && l.filter.Matches(method, uri) {
			l.to.Notify(tagged(m, l.to.ID()))
		}
	}
}

// tag is the member of _meta that says whose a message is (N-03).
func tag(id []byte) string { return `"` + rpc.MetaSubscriptionID + `":` + string(id) }

// tagged is a notification that says whose it is.
func tagged(m session.Message, id []byte) []byte {
	text, e := m.Bytes, &m.Envelope
	if !e.Params.Present() {
		return notification(string(e.Method), "", id)
	}
	var edits rpc.Edits
	switch {
	case e.SubscriptionID.Present():
		edits.Replace(e.SubscriptionID, id)
	case e.Meta.Present():
		edits.Insert(text, e.Meta, []byte(tag(id)))
	default:
		edits.Filter(text, e.Params, func(m rpc.Member) bool { return string(m.Name) != "_meta" }) // some write null
		edits.Insert(text, e.Params, []byte(`"_meta":{`+tag(id)+`}`))
	}
	return rpc.Edited(text, edits...)
}

// notification is one of ours, with params that each end with a comma.
func notification(method, params string, id []byte) []byte {
	return []byte(`{"jsonrpc":"2.0","method":"` + method + `","params":{` + params + `"_meta":{` + tag(id) + `}}}`)
}

// holders is how many processes in a row may hold subscriptions for less than mux.Lasting,
// before the subscriptions are given up.
const holders = 3

// holderEndedLocked sees to it that another process has the subscriptions.
func (g *group) holderEndedLocked(w *worker) {
	if g.holder != w {
		return
	}
	g.holder = nil
	if len(g.listens) == 0 || g.server.closed {
		return
	}
	if time.Since(g.heldSince) >= mux.Lasting {
		g.lostHolders = 0
	}
	g.lostHolders++
	if g.lostHolders > holders {
		g.failListensLocked(w.DeadLocked())
		return
	}
	g.users++
	go g.hold()
}

// hold has another process take over the subscriptions.
func (g *group) hold() {
	s := g.server
	w, err := g.acquire(s.ctx, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer g.leaveLocked()
	if err == nil {
		defer w.releaseLocked(nil)
		err = w.DeadLocked()
	}
	switch {
	case g.holder != nil: // a client that came meanwhile brought one
	case err != nil:
		g.failListensLocked(err)
	case len(g.listens) > 0:
		g.takeOverLocked(w)
	}
}

// takeOverLocked has a process hold the group's subscriptions. It does not know those
// that there are, whose clients are told when it does.
func (g *group) takeOverLocked(w *worker) {
	g.holder, g.heldSince = w, time.Now()
	if len(g.listens) == 0 {
		g.lostHolders = 0 // they were of others
		return
	}
	var asked []<-chan session.Message
	for _, t := range g.topics {
		if t.ok { // or else it is being asked for, or nobody was promised it
			asked = append(asked, w.askLocked("resources/subscribe", uriParam(t.uri), topicTimeout))
		}
	}
	go func() {
		for _, answered := range asked { // which all have the same time
			_ = w.agreed(answered) // else its changes are not seen, as those until now
		}
		g.server.mu.Lock()
		defer g.server.mu.Unlock()
		if g.holder == w {
			g.tellAllLocked()
		}
	}()
}

// tellAllLocked tells clients that whatever they have may have changed: nobody looked.
func (g *group) tellAllLocked() {
	for l := range g.listens {
		if !l.told {
			continue
		}
		for method, uri := range l.filter.Each {
			l.to.Notify(subscription.AppendChange(nil, method, uri, l.to.ID()))
		}
	}
}

// failListensLocked ends subscriptions that no process has any more. It is no result:
// their clients have to ask again.
func (g *group) failListensLocked(reason error) {
	s := g.server
	for l := range g.listens {
		l.failed = reason
		s.leaveLocked(l)
		if l.told {
			refuse(l.to, rpc.CodeInternal, "the subscription has ended: "+reason.Error())
		}
	}
}

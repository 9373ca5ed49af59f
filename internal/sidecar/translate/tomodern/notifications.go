package tomodern

import (
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// receiveChange gives a change to all clients of the group that are subscribed to it. Any
// process of the group may announce it.
func (p *process) receiveChange(method string, m session.Message) {
	if method != subscription.MethodUpdated && subscription.ListOf(method) < 0 {
		p.server.metrics.UnroutedMessages.Inc()
		return
	}
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	if method == subscription.MethodToolsChanged {
		p.group.taskTools.Outdate()
	}
	uri := string(m.Envelope.URI)
	for l := range p.group.listens {
		if l.acknowledged && l.filter.Matches(method, uri) {
			l.to.Notify(tagged(m, l.to.ID()))
		}
	}
}

// tagged is a notification that names its subscription.
func tagged(m session.Message, id []byte) []byte {
	text, e, meta := m.Bytes, &m.Envelope, subscription.Tag(id)
	var edits rpc.Edits
	switch {
	case !e.Params.Present():
		return subscription.Notification(string(e.Method), "", meta)
	case e.SubscriptionID.Present():
		edits.Replace(e.SubscriptionID, id)
	default:
		edits.InsertMeta(text, e.Params, rpc.Lookup(text, e.Params, "_meta"), []byte(meta))
	}
	return edits.Edited(text)
}

package stateless

import (
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// tellLocked tells clients what is honoured of their subscriptions (N-02), as far as it
// is known. One with nothing is over.
func (h *hub) tellLocked() {
	if h.agreed == nil {
		return
	}
	for c, l := range h.listeners {
		if l.told || !h.wanted.Includes(l.filter) {
			continue
		}
		l.told = true
		h.countLocked(l.filter, -1)
		l.filter = h.agreed.And(l.filter)
		h.countLocked(l.filter, 1)
		text := append([]byte(`{"jsonrpc":"2.0","method":"`+subscription.MethodAcknowledged+`","params":{"_meta":{"`+rpc.MetaSubscriptionID+`":`), c.id...)
		text = append(l.filter.Append(append(text, `},"notifications":`...)), "}}"...)
		c.pushLocked(event{message: text, status: http.StatusOK})
		if l.filter.IsEmpty() {
			h.removeLocked(c)
			c.completeLocked()
		}
	}
}

// tellAllLocked tells clients that were subscribed before that everything may have changed:
// the process had no subscription for a moment, and told no changes.
func (h *hub) tellAllLocked() {
	for c, l := range h.listeners {
		if !l.told {
			continue
		}
		for method, uri := range l.filter.Each {
			c.pushLocked(event{message: subscription.AppendChange(nil, method, uri, c.id), news: true, status: http.StatusOK})
		}
	}
}

// newsLocked gives news to the clients that asked for them, each under its own id.
func (h *hub) newsLocked(message session.Message) (told bool) {
	method, uri := string(message.Envelope.Method), string(message.Envelope.URI)
	for c, l := range h.listeners {
		if l.told && l.filter.Matches(method, uri) {
			c.pushLocked(event{message: rpc.Edited(message.Bytes, rpc.Edit{Span: message.Envelope.SubscriptionID, With: c.id}), news: true, status: http.StatusOK})
			told = true
		}
	}
	return told
}

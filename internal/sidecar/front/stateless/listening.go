package stateless

import (
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// listening is what the reply to a subscription knows of its client.
type listening struct {
	grant *access.Grant // what the client may do, as far as the lists that it knows show
	// honored are the lists whose changes the server reports to the client. There are none before the
	// server has acknowledged the subscription.
	honored subscription.Set
}

// replaced is closed when the access document has changed, and the client may have to know. It is nil for a call.
func (l *listening) replaced() <-chan struct{} {
	if l == nil || l.honored == (subscription.Set{}) {
		return nil
	}
	return l.grant.Replaced()
}

// passes reports whether the client may have a message of the subscription, and reads the acknowledgement. The
// rules may have changed since the client subscribed.
func (l *listening) passes(message []byte) bool {
	e, err := rpc.ScanLenient(message)
	if err != nil {
		return false // never happens: it was scanned before
	}
	switch string(e.Method) {
	case subscription.MethodAcknowledged:
		if honored, _, err := subscription.Parse(message, e.Params); err == nil {
			l.honored = honored.Lists
		}
	case subscription.MethodUpdated:
		return l.grant.Now().Rights.HearsOf(e.URI)
	}
	return true
}

// tellChanges announces the lists that look different to the client since the access document has changed.
func (l *listening) tellChanges(to *front.Events, id []byte) {
	now := l.grant.Now()
	differ := rules.Changed(l.grant.Rights, now.Rights)
	l.grant = now
	for list := range differ {
		if differ[list] && l.honored[list] {
			to.Append(rpc.Event{Data: subscription.Notification(subscription.Lists[list].Method, "", subscription.Tag(id))})
		}
	}
}

package sessionless

import (
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// acknowledgeLocked tells clients what the process honors of their subscriptions (N-02), as
// far as the process has said so. A subscription of which it honors nothing ends.
func (s *subscriptions) acknowledgeLocked() {
	if s.honored == nil {
		return
	}
	for c, to := range s.subscribers {
		if to.acknowledged || !s.requested.Includes(to.filter) {
			continue
		}
		to.acknowledged = true
		s.countLocked(to.filter, -1)
		to.filter = s.honored.And(to.filter)
		s.countLocked(to.filter, 1)
		if !to.mirror {
			c.pushLocked(Event{Message: subscription.Acknowledgement(to.filter, c.id)})
			c.listenLocked(to.filter)
		}
		if to.filter.IsEmpty() {
			s.completeLocked(c)
		}
	}
	s.acknowledgeForeignLocked()
}

// changedLocked gives a change to the client.
func (to *subscriber) changedLocked(c *Call, message []byte) {
	if to.mirror {
		c.pushMirrored(Event{Message: message})
	} else {
		c.pushLocked(Event{Message: message})
	}
}

// notifyMissedLocked tells clients that were subscribed before that everything may have
// changed: the process had no subscription for a moment, and told of no changes.
func (s *subscriptions) notifyMissedLocked() {
	for c, to := range s.subscribers {
		if !to.acknowledged {
			continue
		}
		for method, uri := range to.filter.Each {
			to.changedLocked(c, subscription.Notification(method, uri, subscription.Tag(c.id)))
		}
	}
	s.notifyForeignMissedLocked()
}

// notifyLocked gives a change to the clients that subscribed to it, each with its own id. It
// says whether there was one.
func (s *subscriptions) notifyLocked(message session.Message) (found bool) {
	method, uri := string(message.Envelope.Method), string(message.Envelope.URI)
	for c, to := range s.subscribers {
		if to.acknowledged && to.filter.Matches(method, uri) {
			to.changedLocked(c, rpc.Edited(message.Bytes, rpc.Edit{Span: message.Envelope.SubscriptionID, With: c.id}))
			found = true
		}
	}
	return s.notifyForeignLocked(method, uri) || found
}

package session

import "sync/atomic"

// Counter counts events. It is read by whoever publishes metrics.
type Counter struct{ n atomic.Uint64 }

// Inc adds one.
func (c *Counter) Inc() { c.n.Add(1) }

// Value is the count so far.
func (c *Counter) Value() uint64 { return c.n.Load() }

// Metrics are counted over all sessions that share them.
type Metrics struct {
	UnmatchedAnswers     Counter // answers to no request that is in flight
	UnmatchedProgress    Counter // progress of no call that is in flight, nor of a task
	DroppedNotifications Counter // given up for a reader that does not read
	AbandonedAnswers     Counter // given up because the client did not come back for them
	AbandonedStreams     Counter // given up because there were too many that the client had not come back for
	RefusedRequests      Counter // requests of servers beyond what may wait for an answer
	ExpiredRequests      Counter // requests of servers that no client took, or answered, in time
	DroppedReplies       Counter // replies of the adapter's to servers that did not read them
	CallTimeouts         Counter // calls that took longer than they may
	SlowClients          Counter // sessions that ended because their clients did not read and others needed the room
	Stalls               Counter // times that a server was not read for its client's sake
}

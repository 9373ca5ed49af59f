package session

import "sync/atomic"

// Counter is a metric that only grows.
type Counter struct{ n atomic.Uint64 }

// Inc adds one.
func (c *Counter) Inc() { c.n.Add(1) }

// Value returns the count so far.
func (c *Counter) Value() uint64 { return c.n.Load() }

// Metrics count over all sessions that share them.
type Metrics struct {
	UnmatchedAnswers     Counter // answers to no request in flight
	UnmatchedProgress    Counter // progress of no call in flight, and of no task
	DroppedNotifications Counter // notifications given up because the client does not read
	AbandonedAnswers     Counter // answers given up because the client did not come back for them
	AbandonedStreams     Counter // streams given up because the client left too many of them
	RefusedRequests      Counter // requests of servers refused because too many wait for an answer
	ExpiredRequests      Counter // requests of servers that the client did not take, or answer, in time
	DroppedReplies       Counter // replies of the adapter that servers did not read
	CallTimeouts         Counter // calls that took longer than they may
	SlowClients          Counter // sessions ended because their clients did not read and other sessions needed the memory
	Stalls               Counter // times that the adapter stopped reading a server because its client did not read
}

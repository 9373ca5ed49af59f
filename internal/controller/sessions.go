package controller

import (
	"math"
	"time"
)

// sessionsEvery is how often the number of sessions is published at most.
const sessionsEvery = time.Minute

// sessionsOf is the number of sessions to publish: the one that was published, until
// it has changed by a tenth and a minute has passed. Everybody who watches MCPServers gets
// every change.
func sessionsOf(s *state) *int32 {
	if len(s.results) == 0 {
		if len(s.pods) == 0 {
			return new(int32(0))
		}
		return s.server.Status.Sessions
	}
	published := s.server.Status.Sessions
	var open int64
	for _, result := range s.results {
		if result.Report == nil && published != nil {
			return published // until everybody has told
		}
		open += result.Sessions.Open
	}
	sum := int32(min(open, math.MaxInt32))
	if published != nil && isNearly(sum, *published) && !isFull(s, sum, *published) {
		return published
	}
	if wait := sessionsEvery - s.now.Sub(s.memory.sessionsAt); published != nil && wait > 0 {
		s.again(wait)
		return published
	}
	s.memory.sessionsAt = s.now
	return &sum
}

// isNearly says whether a number of sessions differs from another by less than a tenth. Whether
// there are any at all is always told.
func isNearly(number, other int32) bool {
	difference := int64(number) - int64(other)
	return number == other || number != 0 && other != 0 && 10*max(difference, -difference) < int64(other)
}

// isFull says whether one of two numbers of sessions is as many as there may be, which Ready's
// message tells.
func isFull(s *state, number, other int32) bool {
	limit := sessionsLimit(s)
	return number != other && (number == limit || other == limit)
}

// sessionsLimit is how many sessions all pods together may have, or 0 until all have said.
func sessionsLimit(s *state) int32 {
	var limit int64
	for _, result := range s.results {
		if result.Report == nil || result.Sessions.Limit == 0 {
			return 0
		}
		limit += result.Sessions.Limit
	}
	return int32(min(limit, math.MaxInt32))
}

package controller

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// sessionsEvery is how often the number of sessions is published at most.
const sessionsEvery = time.Minute

// sessionsOf is the number of sessions to publish: the one that was published, until
// it has changed by a tenth and a minute has passed. Every client that watches MCPServers gets
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
		if isUnasked(result) && published != nil {
			return published // until every pod was asked
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

// isUnasked says whether the prober has yet to ask a pod, as after a restart of the manager. A pod that was asked and has
// never answered counts with no sessions: its node may be lost, and the last number would stay for as long as the pod.
func isUnasked(result prober.Result) bool { return result.Report == nil && !result.Silent }

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

// sessionsLimit is how many sessions all pods together may have, or 0 until all have said. A pod that ends takes no
// more than it has.
func sessionsLimit(s *state) int32 {
	var limit int64
	terminating := s.terminating()
	for pod, result := range s.results {
		switch {
		case terminating[pod]:
			limit += result.Sessions.Open
		case result.Report == nil || result.Sessions.Limit == 0:
			return 0
		default:
			limit += result.Sessions.Limit
		}
	}
	return int32(min(limit, math.MaxInt32))
}

// terminating are the pods that were deleted and end.
func (s *state) terminating() map[types.UID]bool {
	pods := map[types.UID]bool{}
	for i := range s.pods {
		if pod := &s.pods[i]; isDeleted(pod) && !finished(pod) {
			pods[pod.UID] = true
		}
	}
	return pods
}

// drainingOf is what to publish of the pods that end; nil if there is none. The number of their sessions follows the
// rules of that of all sessions, as long as the same number of pods drains.
func drainingOf(s *state) *mcpv1alpha1.Draining {
	terminating := s.terminating()
	if len(terminating) == 0 {
		return nil
	}
	published, replicas := s.server.Status.Draining, int32(min(len(terminating), math.MaxInt32))
	var open int64
	for i := range s.pods {
		pod := &s.pods[i]
		if !terminating[pod.UID] || pod.Status.PodIP == "" {
			continue // the prober never asks a pod without an address
		}
		result := s.results[pod.UID]
		if isUnasked(result) && published != nil {
			return &mcpv1alpha1.Draining{Replicas: replicas, Sessions: published.Sessions}
		}
		open += result.Sessions.Open
	}
	next := &mcpv1alpha1.Draining{Replicas: replicas, Sessions: int32(min(open, math.MaxInt32))}
	if published != nil && published.Replicas == next.Replicas {
		if isNearly(next.Sessions, published.Sessions) {
			return published
		}
		if wait := sessionsEvery - s.now.Sub(s.memory.drainingAt); wait > 0 {
			s.again(wait)
			return published
		}
	}
	s.memory.drainingAt = s.now
	return next
}

// tellOfDrains says once that pods pile up which rollouts have replaced, and which wait for their sessions to end. A server
// that is stopped has no other pods, and that is as its user wants it.
func (r *Reconciler) tellOfDrains(s *state) {
	replaced, replicas := s.replaced(), int(workload.Replicas(s.server))
	switch {
	case replicas > 0 && replaced > 2*replicas:
		r.warnOnce(s, reasonDrainsPileUp, actionReconcile, fmt.Sprintf(
			"%d pods that rollouts have replaced drain, more than twice as many as spec.replicas: pods are replaced faster than their sessions end; "+
				"replace them less often, or lower spec.session.drainTimeout", replaced))
	case replaced <= replicas:
		s.unwarn(reasonDrainsPileUp)
	}
}

// replaced is how many pods drain that rollouts have replaced. One rollout replaces no more pods than there are to be. So
// of the pods of one template, those beyond that number drain because there were to be fewer; and those of the newest
// template drain because of that, too, or because they were deleted one by one.
func (s *state) replaced() int {
	drain := map[podGeneration]int{}
	for i := range s.pods {
		if pod := &s.pods[i]; isDeleted(pod) && !finished(pod) && !s.isNewest(pod) {
			drain[generationOf(pod.Annotations)]++
		}
	}
	sum, replicas := 0, int(workload.Replicas(s.server))
	for _, pods := range drain {
		sum += min(pods, replicas)
	}
	return sum
}

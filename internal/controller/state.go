package controller

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/controller/status"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// state is what one reconciliation knows.
type state struct {
	server *mcpv1alpha1.MCPServer
	name   types.NamespacedName
	now    time.Time
	memory *memory

	// What was observed.
	live      map[workload.ObjectID]client.Object // without what is not there
	revisions []appsv1.ControllerRevision         // newest first
	current   *workload.Rendered                  // of the newest revision
	pods      []corev1.Pod
	results   map[types.UID]prober.Result

	lacksAuth bool // the manager's configuration requires spec.auth, and there is none

	// What was decided.
	keys     *serverKeys // nil as long as there are none
	settings adapterapi.Document
	access   adapterapi.Document       // zero as long as there is none
	issuers  []adapterapi.AccessIssuer // of the access document
	// accessProblem is why no document can be made of the spec; empty if one was, or may be.
	accessProblem string
	unasked       []string // issuers that have yet to answer
	unavailable   []string // issuers that were never reached, and why
	references    string   // keyed digest of what the spec refers to
	rendered      *workload.Rendered
	outdated      bool
	undecided     bool             // which template the spec leads to is not known yet
	hold          bool             // the caches are behind: nothing is applied or deleted
	atLeast       int32            // pods that there are to be, although the spec asks for fewer
	scaled        bool             // it was decided how many pods there are to be
	lowers        bool             // and that is less than before
	refusal       *status.Obstacle // the user must act
	waiting       *status.Obstacle // time will tell

	applied map[workload.ObjectID]metav1.PartialObjectMetadata // what the API server answered

	requeueAfter time.Duration
}

func newState(server *mcpv1alpha1.MCPServer, now time.Time) *state {
	return &state{
		server: server, name: client.ObjectKeyFromObject(server), now: now, memory: &memory{},
		live: map[workload.ObjectID]client.Object{}, applied: map[workload.ObjectID]metav1.PartialObjectMetadata{},
	}
}

// deployment is the Deployment as it was observed; nil if there is none.
func (s *state) deployment() *appsv1.Deployment {
	deployment, _ := s.live[workload.ObjectDeployment].(*appsv1.Deployment)
	return deployment
}

// has says whether the server has an object of its own.
func (s *state) has(id workload.ObjectID) bool {
	_, applied := s.applied[id]
	live := s.live[id]
	return applied || live != nil && ownedBy(live, s.server)
}

// refuse notes why the server cannot be accepted; the first reason counts.
func (s *state) refuse(reason, message string) {
	if s.refusal == nil {
		s.refusal = &status.Obstacle{Reason: reason, Message: message}
	}
}

// wait notes what is in the way for now; the first reason counts.
func (s *state) wait(reason, message string) {
	if s.waiting == nil {
		s.waiting = &status.Obstacle{Reason: reason, Message: message}
	}
}

// again asks for another reconciliation, no later than after d.
func (s *state) again(d time.Duration) {
	if s.requeueAfter == 0 || d < s.requeueAfter {
		s.requeueAfter = d
	}
}

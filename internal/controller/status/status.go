// Package status computes the status of an MCPServer from what was observed. It is
// the only place that sets conditions.
package status

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/prober"
)

// Observed is everything that a status is computed from.
type Observed struct {
	// Server is the object, with the status it has now.
	Server *mcpv1alpha1.MCPServer
	// Refusal is why the server is not accepted; nil when it is.
	Refusal *Obstacle
	// Waiting is what is in the way and goes away by itself, such as a registry
	// that does not answer; nil when nothing is.
	Waiting *Obstacle
	// Deployment is nil while there is none.
	Deployment *appsv1.Deployment
	// Applied is the generation that the Deployment has since it was last applied,
	// or 0. A Deployment of an older one is not yet what the spec asks for.
	Applied int64
	// Template names the template that pods should be of; empty when it is not known.
	Template string
	// Pods are those of the server, terminating ones included.
	Pods []corev1.Pod
	// Results are by the UID of the pod.
	Results map[types.UID]prober.Result
	// CatalogConfigMap is the name of the ConfigMap that has the whole catalog; empty while
	// there is none.
	CatalogConfigMap string
	Image            *mcpv1alpha1.ResolvedImage
	PodTemplate      *mcpv1alpha1.TemplateStatus
	// StartTimeout is how long a process of the server may take until it answers.
	StartTimeout time.Duration
	// Processes counts the processes of all pods that ended recently.
	Processes adapterapi.Processes
	// Sessions is the number to publish, or nil when it is not known.
	Sessions *int32
	// SessionsLimit is how many there may be, or 0 when it is not known.
	SessionsLimit int32
	// Draining is what to publish of pods that end; nil if there is none.
	Draining *mcpv1alpha1.Draining
	// Access is what the adapters are to enforce; nil if the spec asks for nothing of that.
	Access   *Access
	URL      string // empty while the server has no Service of its own
	Selector string
	Now      metav1.Time
}

// Access is the access document that the adapters are to enforce.
type Access struct {
	// Digest is empty as long as there is no document. With a Problem, it is that of the document that stands in
	// for the spec.
	Digest  string
	Issuers []mcpv1alpha1.IssuerStatus
	// Problem is why no document can be made of the spec, and what to do; empty if one was, or may be.
	Problem string
}

// Obstacle is something in the way, as a condition tells it.
type Obstacle struct {
	Reason  string
	Message string
}

// Compute returns the status that follows from what was observed. It depends on
// nothing else, and on its own result it gives the same again: the status that the
// server has now only says what to keep, which is the times of conditions, the last
// known catalog, and what instances answered before this manager could ask them.
func Compute(o Observed) mcpv1alpha1.MCPServerStatus {
	v := look(&o)
	next := catalogOf(v)
	next.ObservedGeneration = o.Server.Generation
	if o.URL != "" {
		next.Address = &mcpv1alpha1.Address{URL: o.URL}
		next.Addresses = []mcpv1alpha1.NamedAddress{{Name: mcpv1alpha1.AddressCluster, URL: o.URL}}
	}
	next.Access = accessOf(v)
	next.Instances = instancesOf(v)
	next.Sessions = o.Sessions
	next.Draining = o.Draining
	next.ReadyReplicas = v.ready
	if o.Deployment != nil {
		next.Replicas = o.Deployment.Status.Replicas
	}
	next.Selector = o.Selector
	next.Image = boundImage(o.Image)
	next.Template = o.PodTemplate.DeepCopy()
	next.Conditions = conditionsOf(v, next.Catalog)
	return next
}

// view is what was observed, seen as instances.
type view struct {
	*Observed

	before *mcpv1alpha1.MCPServerStatus
	want   int32 // pods
	// off is the reason why no pods are wanted; empty when some are.
	off       string
	instances []instance // by name
	live      int32      // instances that are not draining
	ready     int32      // of these, those that are ready
}

func look(o *Observed) *view {
	v := &view{Observed: o, before: &o.Server.Status, want: 1}
	if o.Server.Spec.Replicas != nil {
		v.want = *o.Server.Spec.Replicas
	}
	switch {
	case o.Server.Spec.Suspend:
		v.off, v.want = mcpv1alpha1.ReasonSuspended, 0
	case v.want == 0:
		v.off = mcpv1alpha1.ReasonScaledToZero
	}
	v.lookAtPods()
	v.recall()
	return v
}

// Package controller makes the cluster look the way MCPServers say, and says in their
// status what is really there.
//
// Reconcile reads everything first, decides on it, writes, and computes the status
// once at the end. It talks only to the API server. Background workers ask registries
// and instances, and enqueue the server again when an answer arrives.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/objectwatch"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/internal/registry"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// Options are what a Reconciler works with.
type Options struct {
	// Client reads from the cache, but for the kinds of which the cache has the metadata only:
	// see newObject.
	Client client.Client
	// Metadata is the cache itself. The Client asks the API server even for the metadata
	// of what it may not read from the cache.
	Metadata client.Reader
	// Live reads from the API server.
	Live client.Reader
	// Events records what users should know.
	Events events.EventRecorder
	// Images resolves image references.
	Images ImageResolver
	// Prober looks after the instances.
	Prober Prober
	// Issuers has the keys of issuers of tokens.
	Issuers Issuers
	// Registries are those that may be asked.
	Registries registry.Policy
	// Owned is what servers may have, in the order in which it is applied.
	Owned []workload.Owned
	// Adapter is what pods get.
	Adapter workload.Adapter
	// OnOperatorUpgrade says whether running pods get it, if the spec does not say; Ignore if
	// empty.
	OnOperatorUpgrade mcpv1alpha1.RolloutPolicy
	// MaxRollouts is how many servers are rolled out at a time without a change of their
	// specs; 10 if 0.
	MaxRollouts int
	// Users says who chooses the user of a container whose spec names none.
	Users workload.UserPolicy
	// Defaults are for what specs leave out.
	Defaults workload.Defaults
	// Bounds are what specs may ask for.
	Bounds workload.Bounds
	// RequireAuth selects the namespaces, by their labels, whose MCPServers must have spec.auth. Nil
	// selects none. A selector that selects everything looks at no namespace.
	RequireAuth labels.Selector
	// Namespaces are the only ones whose MCPServers are looked at; none means all.
	Namespaces []string
	// ClusterDomain is what the names of Services end with.
	ClusterDomain string
	// Workers is how many servers are reconciled at a time. None of them waits for anything
	// but the API server. Half of them, and at least one, create servers.
	Workers int
	// Now is the time.
	Now func() time.Time
}

// Prober looks after the instances of servers and says what it found.
type Prober interface {
	// Watch replaces the instances of a server; none forgets it.
	Watch(server types.NamespacedName, instances []prober.Instance)
	Results(server types.NamespacedName) map[types.UID]prober.Result
}

// Reconciler reconciles MCPServers.
type Reconciler struct {
	Options

	memories   memories
	images     imageLookups
	creations  creations
	rollouts   rollouts
	references referenceIndex
	optional   optionalKinds
	watches    map[string]*objectwatch.Watch // of what specs refer to, by kind

	idleWrites     prometheus.Counter                                         // status writes without effect
	waiting        prometheus.Collector                                       // servers that wait to be created
	idleWritesSeen sync.Once                                                  // logs the first
	queue          atomic.Pointer[requestQueue]                               // nil until the controller has started
	informers      atomic.Pointer[map[schema.GroupVersionKind]cache.Informer] // nil until then, too
}

// New returns a Reconciler. SetupWithManager makes it work.
func New(options Options) *Reconciler {
	r := &Reconciler{Options: options, idleWrites: newIdleWrites()}
	r.images.resolver = options.Images
	r.creations.most = max(1, options.Workers/2)
	r.waiting = newWaiting(&r.creations)
	r.rollouts.most = cmp.Or(options.MaxRollouts, DefaultMaxRollouts)
	return r
}

// Metrics are what the Reconciler counts.
func (r *Reconciler) Metrics() []prometheus.Collector {
	return []prometheus.Collector{r.idleWrites, r.waiting}
}

// +kubebuilder:rbac:groups=mcp.slipway.dev,resources=mcpservers,verbs=get;list;watch
// +kubebuilder:rbac:groups=mcp.slipway.dev,resources=mcpservers/status,verbs=patch
// Owner references that block the deletion of their owner need this.
// +kubebuilder:rbac:groups=mcp.slipway.dev,resources=mcpservers/finalizers,verbs=update

// Reconcile brings one MCPServer closer to what its spec asks for.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	server := &mcpv1alpha1.MCPServer{}
	if err := r.Client.Get(ctx, request.NamespacedName, server); err != nil {
		if apierrors.IsNotFound(err) {
			return r.takeLeave(ctx, request.NamespacedName)
		}
		return reconcile.Result{}, fmt.Errorf("get MCPServer %s: %w", request, err)
	}
	if !server.DeletionTimestamp.IsZero() {
		if slices.Contains(server.Finalizers, metav1.FinalizerOrphanDependents) {
			r.forget(request.NamespacedName, nil) // everything else stays
			return reconcile.Result{}, nil
		}
		return r.takeLeave(ctx, request.NamespacedName) // everything else goes with its owner
	}
	s := newState(server, r.Now())
	s.memory = r.memories.of(s.name)
	replaced := func(version string) bool { return version != server.ResourceVersion }
	if wait := s.memory.statusWrite.retryAfter(replaced, s.now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return r.reconcileServer(ctx, s)
}

// reconcileServer reconciles a server that exists, and of which the cache has the newest status.
func (r *Reconciler) reconcileServer(ctx context.Context, s *state) (reconcile.Result, error) {
	if err := r.observe(ctx, s); err != nil {
		return reconcile.Result{}, err // without knowing what is there, no status is true
	}
	if wait := s.memory.revisionWrite.retryAfter(s.hasRevision, s.now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if !r.beginCreation(s) {
		return reconcile.Result{}, nil // the end of another creation has it reconciled again
	}
	defer r.endCreation(s.name)
	err := r.steps(ctx, s)
	r.settleScale(s, err)
	if isTerminating(err) {
		s.leaveNamespace()
		r.watchLeft(s)
		err = nil
	}
	if err := errors.Join(err, r.publish(ctx, s, err)); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: s.requeueAfter}, nil
}

// steps are what Reconcile does with what it has observed, in order. Each leaves in the state what the next
// ones and the status need.
func (r *Reconciler) steps(ctx context.Context, s *state) error {
	for _, step := range []func(context.Context, *state) error{
		r.requireAuth, // first, because the first reason counts
		r.checkNamespace,
		r.planSettings,
		r.ensureKeys,
		r.planAccess,
		r.watchInstances, // before anything that can fail: what runs is looked after
		r.applySettings,
		r.rotateKeys,
		r.checkSpec,
		r.checkReferences,
		r.planTemplate,
		r.planScale,
		r.apply,
		r.prune,
		r.checkIssuers,
	} {
		if err := step(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// forget drops what is kept of a server that is gone, but for what the prober knows of these instances.
func (r *Reconciler) forget(name types.NamespacedName, left []prober.Instance) {
	r.Prober.Watch(name, left)
	r.memories.forget(name, left)
	r.images.forget(name)
	r.Issuers.Follow(name, nil)
	r.endCreation(name)
	r.noteRollout(name, time.Time{}, r.Now())
	r.references.forget(name, r.unfollow)
}

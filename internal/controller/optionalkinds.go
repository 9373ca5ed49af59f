package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-mcp/slipway/internal/workload"
)

// optionalRecheck is how soon the controller looks again for a kind that the API server does not serve.
const optionalRecheck = 30 * time.Second

// optionalKinds are the kinds that a cluster may lack, such as those of the Gateway API. The
// controller looks for each until the API server serves it. The watch of a kind that is missing would
// keep the controller from starting, so these kinds have a cache of their own, and the controller
// does not wait for it.
type optionalKinds struct {
	cache cache.Cache // nil if there are none

	mu        sync.Mutex
	informers map[schema.GroupVersionKind]cache.Informer // of the kinds that are served
	missing   map[schema.GroupVersionKind]bool           // kinds that the API server said it does not serve
}

// anytime has a cache run without the leader's lease, as that of the manager does.
type anytime struct{ cache.Cache }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (anytime) NeedLeaderElection() bool { return false }

// setUpOptional makes the cache of the kinds that a cluster may lack.
func (r *Reconciler) setUpOptional(mgr ctrl.Manager) (err error) {
	if len(r.optionalOwned()) == 0 {
		return nil
	}
	options := cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultLabelSelector: ours(), DefaultTransform: Trim, DefaultNamespaces: map[string]cache.Config{},
	}
	for _, namespace := range r.Namespaces {
		options.DefaultNamespaces[namespace] = cache.Config{}
	}
	if r.optional.cache, err = cache.New(mgr.GetConfig(), options); err != nil {
		return fmt.Errorf("create cache of optional kinds: %w", err)
	}
	return mgr.Add(anytime{r.optional.cache})
}

func (r *Reconciler) optionalOwned() []workload.Owned {
	var optional []workload.Owned
	for _, owned := range r.Owned {
		if owned.IsOptional {
			optional = append(optional, owned)
		}
	}
	return optional
}

// findOptional watches each optional kind as soon as the API server serves it.
func (r *Reconciler) findOptional(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, optionalRecheck, true, func(ctx context.Context) (bool, error) {
		all := true
		for _, owned := range r.optionalOwned() {
			err := r.watchOptional(ctx, owned.Kind)
			r.optional.note(owned.Kind, meta.IsNoMatchError(err))
			if err != nil {
				all = false
				if !meta.IsNoMatchError(err) {
					log.FromContext(ctx).Info("Cannot watch an optional kind yet", "kind", owned.Kind.String(), "reason", err.Error())
				}
			}
		}
		return all, nil
	}) // the only error is that ctx ended
}

func (r *Reconciler) watchOptional(ctx context.Context, kind schema.GroupVersionKind) error {
	if r.optional.informer(kind) != nil {
		return nil
	}
	informer, err := r.optional.cache.GetInformer(ctx, metadataOf(kind), cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	changed := func(object any) {
		if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if object, ok := object.(client.Object); ok {
			for _, request := range serverOfOwned(ctx, object) {
				r.enqueue(request.NamespacedName)
			}
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, now any) { changed(now) }, DeleteFunc: changed,
	})
	if err != nil {
		return err
	}
	r.optional.mu.Lock()
	defer r.optional.mu.Unlock()
	if r.optional.informers == nil {
		r.optional.informers = map[schema.GroupVersionKind]cache.Informer{}
	}
	r.optional.informers[kind] = informer
	return nil
}

func (o *optionalKinds) informer(kind schema.GroupVersionKind) cache.Informer {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.informers[kind]
}

// isServed says whether the cache has the objects of an optional kind.
func (o *optionalKinds) isServed(kind schema.GroupVersionKind) bool {
	informer := o.informer(kind)
	return informer != nil && informer.HasSynced()
}

// note notes whether the API server says that it does not serve a kind.
func (o *optionalKinds) note(kind schema.GroupVersionKind, missing bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.missing == nil {
		o.missing = map[schema.GroupVersionKind]bool{}
	}
	o.missing[kind] = missing
}

// isMissing says whether the API server has said so. Until it was asked, nothing is known.
func (o *optionalKinds) isMissing(kind schema.GroupVersionKind) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.missing[kind]
}

// applyOptional applies an object of a kind that the cluster may lack. The server works without the
// kind: the manager reports that in an Event, and nothing waits for it.
func (r *Reconciler) applyOptional(ctx context.Context, s *state, object desired) error {
	warning := reasonKindNotServed + " " + object.Kind.Kind
	isMissing := r.optional.isMissing(object.Kind)
	if r.optional.isServed(object.Kind) {
		err := r.applyOne(ctx, s, object)
		if isMissing = meta.IsNoMatchError(err) || apierrors.IsNotFound(err); !isMissing { // it is if its CRD was deleted
			s.unwarn(warning)
			return err
		}
	}
	if isMissing {
		r.warnOnceAs(s, warning, reasonKindNotServed, actionReconcile, fmt.Sprintf("the API server does not serve %s, so the server has no %s: "+
			"install its CustomResourceDefinition; the manager goes on by itself", object.Kind.GroupKind(), object.Kind.Kind))
	}
	s.again(optionalRecheck)
	return nil
}

// Package objectwatch follows the versions of a few objects of a kind, however many objects
// of that kind a cluster has. It keeps nothing of the others: what other tenants store in
// their Secrets and ConfigMaps must not decide how much memory the manager needs.
package objectwatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	watchtools "k8s.io/client-go/tools/watch"
)

// Options are what a Watch works with.
type Options struct {
	// Client reads metadata of objects from the API server.
	Client metadata.Interface
	// Resource is the kind of the objects.
	Resource schema.GroupVersionResource
	// Namespaces are the only ones that are watched; none means all.
	Namespaces []string
	// Changed is called when an object that Version was asked for has changed.
	Changed func(types.NamespacedName)
	Log     logr.Logger
}

// Watch follows objects of one kind.
type Watch struct {
	options Options

	mu       sync.Mutex
	versions map[types.NamespacedName]version // of the objects that are followed
	unsynced int                              // namespaces whose objects have not been listed yet
}

// version is what is known of an object.
type version struct {
	text  string // empty if there is no such object
	known bool
}

// New returns a Watch. Start makes it work.
func New(options Options) *Watch {
	if len(options.Namespaces) == 0 {
		options.Namespaces = []string{metav1.NamespaceAll}
	}
	return &Watch{options: options, versions: map[types.NamespacedName]version{}, unsynced: len(options.Namespaces)}
}

// Version is a text that changes when the object does, and is empty if there is none. The
// object is followed from then on, until it is forgotten. The API server is asked only if
// the object was not followed before.
func (w *Watch) Version(ctx context.Context, name types.NamespacedName) (string, error) {
	w.mu.Lock()
	known, followed := w.versions[name]
	if !followed {
		w.versions[name] = known // before the question: a change after the answer is an event
	}
	w.mu.Unlock()
	if known.known {
		return known.text, nil
	}
	object, err := w.options.Client.Resource(w.options.Resource).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("get metadata of %s %s: %w", w.options.Resource.Resource, name, err)
	}
	if err != nil {
		object = nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.versions[name]; known.known {
		return known.text, nil // an event has told meanwhile
	}
	answer := versionOf(object)
	if _, followed := w.versions[name]; followed {
		w.versions[name] = answer
	}
	return answer.text, nil
}

// Forget stops following an object.
func (w *Watch) Forget(name types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.versions, name)
}

// HasSynced says whether the objects of all namespaces have been listed once. Before that,
// no change is noticed.
func (w *Watch) HasSynced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unsynced == 0
}

// NeedLeaderElection lets a standby watch, too, so that it can take over at once.
func (*Watch) NeedLeaderElection() bool { return false }

// Start watches until the context ends.
func (w *Watch) Start(ctx context.Context) error {
	var watching sync.WaitGroup
	for _, namespace := range w.options.Namespaces {
		watching.Go(func() { w.follow(ctx, namespace) })
	}
	watching.Wait()
	return nil
}

// A namespace that cannot be listed or watched is tried again after these.
var retry = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 30 * time.Second}

// lastingWatch is how long a watch has to last before the back-off starts over.
const lastingWatch = 30 * time.Second

// follow lists and watches one namespace until the context ends.
func (w *Watch) follow(ctx context.Context, namespace string) {
	synced := sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.unsynced--
	})
	for backoff := retry; ctx.Err() == nil; {
		from, err := w.list(ctx, namespace)
		began := time.Now()
		if err == nil {
			synced()
			err = w.watch(ctx, namespace, from)
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > lastingWatch {
			backoff = retry
		}
		pause := backoff.Step() // a list of a whole cluster is expensive
		if err != nil {
			w.options.Log.Error(err, "Cannot follow objects", "resource", w.options.Resource.Resource, "namespace", namespace, "retryAfter", pause.String())
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// pageSize is how many objects are in memory at a time while they are listed.
const pageSize = 500

// list compares what is followed with what there is, and returns where a watch goes on.
func (w *Watch) list(ctx context.Context, namespace string) (from string, err error) {
	before := w.followed(namespace)
	missing := maps.Clone(before)
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := w.options.Client.Resource(w.options.Resource).Namespace(namespace).List(ctx, options)
		if err != nil {
			return "", fmt.Errorf("list %s: %w", w.options.Resource.Resource, err)
		}
		for i := range page.Items {
			name := nameOf(&page.Items[i])
			w.note(name, &page.Items[i])
			delete(missing, name)
		}
		if options.Continue = page.Continue; options.Continue == "" {
			for name := range missing {
				w.note(name, nil)
			}
			w.askAgain(namespace, before)
			return page.ResourceVersion, nil
		}
	}
}

// watch follows events from a version on. It returns nil if the API server no longer has
// the events from there on.
func (w *Watch) watch(ctx context.Context, namespace, from string) error {
	events, err := watchtools.NewRetryWatcherWithContext(ctx, from, &watcher{w.options.Client.Resource(w.options.Resource).Namespace(namespace)})
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.options.Resource.Resource, err)
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		object, ok := event.Object.(*metav1.PartialObjectMetadata)
		switch {
		case event.Type == watch.Error:
			if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				return fmt.Errorf("watch %s: %w", w.options.Resource.Resource, err)
			}
			return nil
		case !ok || event.Type == watch.Bookmark:
		case event.Type == watch.Deleted:
			w.note(nameOf(object), nil)
		default:
			w.note(nameOf(object), object)
		}
	}
	return errors.New("the watch has ended")
}

// watcher is what a RetryWatcher begins watches with.
type watcher struct{ objects metadata.ResourceInterface }

func (w *watcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	watching, err := w.objects.Watch(ctx, options)
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) {
		// A RetryWatcher would try the same version again and again. It takes an event for the end.
		expired := watch.NewFakeWithChanSize(1, false)
		expired.Error(&status.ErrStatus)
		return expired, nil
	}
	return watching, err
}

// note notes an object that is followed, or that it is gone.
func (w *Watch) note(name types.NamespacedName, object *metav1.PartialObjectMetadata) {
	w.mu.Lock()
	before, followed := w.versions[name]
	now := versionOf(object)
	if followed {
		w.versions[name] = now
	}
	w.mu.Unlock()
	if followed && before != now {
		w.options.Changed(name)
	}
}

// askAgain has objects asked for again that are followed since the list began: they may have
// been deleted before the page that they would stand on.
func (w *Watch) askAgain(namespace string, before map[types.NamespacedName]struct{}) {
	for name := range w.followed(namespace) {
		if _, ok := before[name]; ok {
			continue
		}
		w.mu.Lock()
		if _, followed := w.versions[name]; followed {
			w.versions[name] = version{}
		}
		w.mu.Unlock()
		w.options.Changed(name)
	}
}

// followed are the objects of a namespace that are followed now.
func (w *Watch) followed(namespace string) map[types.NamespacedName]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := map[types.NamespacedName]struct{}{}
	for name := range w.versions {
		if namespace == metav1.NamespaceAll || namespace == name.Namespace {
			names[name] = struct{}{}
		}
	}
	return names
}

func nameOf(object *metav1.PartialObjectMetadata) types.NamespacedName {
	return types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
}

func versionOf(object *metav1.PartialObjectMetadata) version {
	if object == nil {
		return version{known: true}
	}
	return version{string(object.UID) + "/" + object.ResourceVersion, true}
}

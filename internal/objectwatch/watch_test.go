package objectwatch

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

// apiServer is one whose lists and watches a test decides on. Tests with a real one are in
// test/integration: a real one does not forget events, or page, when a test wants it to.
type apiServer struct {
	metadata.Interface
	metadata.ResourceInterface

	mu      sync.Mutex
	objects map[string]string // versions by name
	pages   func(page int)    // is called before each page of a list
	watch   *watch.FakeWatcher
	lists   int
	gets    int
	refuses error
	expired int // how often a watch is refused because its version is too old
}

func (a *apiServer) Resource(schema.GroupVersionResource) metadata.Getter { return getter{a} }

type getter struct{ *apiServer }

func (g getter) Namespace(string) metadata.ResourceInterface { return g.apiServer }
func (g getter) Resource(schema.GroupVersionResource) metadata.Getter {
	return g
}

func object(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid", ResourceVersion: version}}
}

func (a *apiServer) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gets++
	if version, ok := a.objects[name]; ok {
		return object(name, version), nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
}

// List has one object on each page, in the order of their names.
func (a *apiServer) List(_ context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuses != nil {
		return nil, a.refuses
	}
	var names []string
	for name := range a.objects {
		if name > options.Continue {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if options.Continue == "" {
		a.lists++
	}
	list := &metav1.PartialObjectMetadataList{}
	list.ResourceVersion = "100"
	if len(names) > 0 {
		list.Items = append(list.Items, *object(names[0], a.objects[names[0]]))
	}
	if len(names) > 1 {
		list.Continue = names[0]
	}
	if a.pages != nil {
		a.mu.Unlock()
		a.pages(len(names))
		a.mu.Lock()
	}
	return list, nil
}

func (a *apiServer) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.expired > 0 {
		a.expired--
		return nil, apierrors.NewResourceExpired("too old")
	}
	a.watch = watch.NewFake()
	return a.watch, nil
}

// event has the current watch say something. An error ends it.
func (a *apiServer) event(t *testing.T, kind watch.EventType, object runtime.Object) {
	t.Helper()
	for range 10 {
		synctest.Wait()
		a.mu.Lock()
		to := a.watch
		if kind == watch.Error {
			a.watch = nil
		}
		a.mu.Unlock()
		if to != nil {
			to.Action(kind, object)
			synctest.Wait()
			return
		}
		time.Sleep(time.Second)
	}
	t.Fatal("nothing is watched")
}

func at(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }

// start starts a Watch in a bubble, and returns the names that it says have changed.
func start(t *testing.T, api *apiServer) (w *Watch, changed func() []string) {
	t.Helper()
	var mu sync.Mutex
	var names []string
	w = New(Options{Client: api, Log: testr.New(t), Changed: func(name types.NamespacedName) {
		mu.Lock()
		defer mu.Unlock()
		names = append(names, name.Name)
	}})
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = w.Start(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-stopped
	})
	return w, func() []string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		told := names
		names = nil
		return told
	}
}

func want(t *testing.T, what string, got []string, wanted ...string) {
	t.Helper()
	if !slices.Equal(got, wanted) {
		t.Errorf("%s: changes of %q, want %q", what, got, wanted)
	}
}

func wantVersion(t *testing.T, w *Watch, name, wanted string) {
	t.Helper()
	if got, err := w.Version(t.Context(), at(name)); err != nil || got != wanted {
		t.Errorf("%s: version %q, %v, want %q", name, got, err, wanted)
	}
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &apiServer{objects: map[string]string{"a": "1", "b": "1", "c": "1"}}
		w, changed := start(t, api)
		want(t, "nothing is followed", changed())
		if !w.HasSynced() {
			t.Error("it is not in sync")
		}
		wantVersion(t, w, "a", "uid/1")
		wantVersion(t, w, "later", "")
		api.event(t, watch.Modified, object("a", "2"))
		want(t, "a changes", changed(), "a")
		wantVersion(t, w, "a", "uid/2")
		api.event(t, watch.Modified, object("b", "2"))
		want(t, "one that is not followed changes", changed())
		api.event(t, watch.Added, object("later", "3"))
		want(t, "one appears", changed(), "later")
		api.event(t, watch.Deleted, object("a", "4"))
		want(t, "one goes", changed(), "a")
		wantVersion(t, w, "a", "")
		if api.gets != 2 {
			t.Errorf("the API server was asked %d times, want once for each name", api.gets)
		}
		w.Forget(at("later"))
		api.event(t, watch.Modified, object("later", "5"))
		want(t, "one that was forgotten changes", changed())
		if len(w.versions) != 1 {
			t.Errorf("%d objects are kept, want 1", len(w.versions))
		}
	})
}

// After the API server has forgotten events, a list finds what has changed and what is gone.
func TestListAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &apiServer{objects: map[string]string{"a": "1", "b": "1", "c": "1"}}
		w, changed := start(t, api)
		want(t, "nothing is followed", changed()) // and the first list is over
		for _, name := range []string{"a", "b", "c"} {
			wantVersion(t, w, name, "uid/1")
		}
		api.mu.Lock()
		api.objects = map[string]string{"a": "1", "b": "2"}
		api.mu.Unlock()
		gone := apierrors.NewResourceExpired("too old")
		api.event(t, watch.Error, &gone.ErrStatus)
		want(t, "before it lists again", changed())
		time.Sleep(2 * time.Second) // the pause before a list
		want(t, "it lists again", changed(), "b", "c")
		if api.lists != 2 {
			t.Errorf("%d lists, want 2", api.lists)
		}
		wantVersion(t, w, "c", "")
		api.event(t, watch.Added, object("c", "3"))
		want(t, "it watches again", changed(), "c")
	})
}

// An object that is first asked for while objects are listed may stand on a page that was
// read before. It is not missing.
func TestFollowWhileListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &apiServer{objects: map[string]string{"a": "1", "b": "1", "c": "1"}}
		var w *Watch
		made := make(chan struct{})
		api.pages = func(left int) {
			<-made
			if left == 2 { // "a" was on the first page
				wantVersion(t, w, "a", "uid/1")
			}
		}
		w, changed := start(t, api)
		close(made)
		want(t, "it may have been deleted before the list", changed(), "a")
		wantVersion(t, w, "a", "uid/1")
	})
}

// A manager without the right to list says so, is not in sync, and tries again.
func TestForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &apiServer{objects: map[string]string{"a": "1"}, refuses: apierrors.NewForbidden(schema.GroupResource{}, "", nil)}
		w, changed := start(t, api)
		time.Sleep(time.Minute)
		if w.HasSynced() {
			t.Error("it is in sync with what it must not read")
		}
		wantVersion(t, w, "a", "uid/1")
		api.mu.Lock()
		api.objects["a"], api.refuses = "2", nil
		api.mu.Unlock()
		time.Sleep(time.Minute)
		want(t, "it may list now", changed(), "a")
		if !w.HasSynced() {
			t.Error("it is not in sync")
		}
	})
}

// A watch that the API server refuses because its version is too old begins with another list.
func TestVersionTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &apiServer{objects: map[string]string{"a": "1"}, expired: 2}
		w, changed := start(t, api)
		wantVersion(t, w, "a", "uid/1")
		time.Sleep(time.Minute)
		api.event(t, watch.Modified, object("a", "2"))
		if got := changed(); !slices.Contains(got, "a") || api.lists != 3 {
			t.Errorf("changes of %q after %d lists, want one of a after 3", got, api.lists)
		}
		wantVersion(t, w, "a", "uid/2")
	})
}

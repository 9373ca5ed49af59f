package controller

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-mcp/slipway/internal/registry"
)

// resolverFunc is a registry that tests make up.
type resolverFunc func(context.Context, ImageRequest) (registry.Image, error)

func (f resolverFunc) Resolve(ctx context.Context, request ImageRequest) (registry.Image, error) {
	return f(ctx, request)
}

func startLookups(ctx context.Context, resolver resolverFunc) (*imageLookups, chan types.NamespacedName) {
	told := make(chan types.NamespacedName, 100)
	l := &imageLookups{resolver: resolver}
	l.start(ctx, func(server types.NamespacedName) { told <- server })
	return l, told
}

var someServer = types.NamespacedName{Namespace: "ns", Name: "server"}

// The lookup asks a registry once for each spec, and never blocks its caller.
func TestLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		l, told := startLookups(t.Context(), func(context.Context, ImageRequest) (registry.Image, error) {
			asked++
			time.Sleep(time.Second)
			return registry.Image{Digest: "sha256:1"}, nil
		})
		begin := time.Now()
		if got := l.lookup(someServer, "one", ImageRequest{}, time.Now()); got.done || time.Since(begin) != 0 {
			t.Errorf("the first question is answered at once: %+v", got)
		}
		l.lookup(someServer, "one", ImageRequest{}, time.Now())
		if server := <-told; server != someServer {
			t.Errorf("told of %s", server)
		}
		if got := l.lookup(someServer, "one", ImageRequest{}, time.Now()); !got.done || got.image == nil || asked != 1 {
			t.Errorf("asked %d times: %+v", asked, got)
		}
		l.lookup(someServer, "two", ImageRequest{}, time.Now())
		<-told
		if asked != 2 {
			t.Errorf("another spec: asked %d times", asked)
		}
		l.forget(someServer)
		if len(l.lookups) != 0 {
			t.Error("a server that is gone is kept")
		}
	})
}

// The lookup backs off from a registry that fails, and retries only when a caller asks
// for the answer.
func TestLookupThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		l, told := startLookups(t.Context(), func(context.Context, ImageRequest) (registry.Image, error) {
			asked++
			if asked == 4 {
				return registry.Image{Digest: "sha256:1"}, nil
			}
			return registry.Image{}, &registry.Error{Kind: registry.Unavailable, Detail: "down"}
		})
		var pauses []time.Duration
		for range 3 {
			l.lookup(someServer, "one", ImageRequest{}, time.Now())
			<-told
			got := l.lookup(someServer, "one", ImageRequest{}, time.Now())
			if !got.done || got.err == nil {
				t.Fatalf("got %+v", got)
			}
			pauses = append(pauses, time.Until(got.next))
			time.Sleep(time.Until(got.next))
		}
		if pauses[0] != firstLookupPause || pauses[1] != 2*firstLookupPause || pauses[2] != 4*firstLookupPause {
			t.Errorf("pauses: %v", pauses)
		}
		l.lookup(someServer, "one", ImageRequest{}, time.Now())
		<-told
		if got := l.lookup(someServer, "one", ImageRequest{}, time.Now()); got.err != nil || got.image == nil {
			t.Errorf("got %+v", got)
		}
	})
}

// While a registry that failed is asked again, its last error stands.
func TestLookupKeepsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, told := startLookups(t.Context(), func(context.Context, ImageRequest) (registry.Image, error) {
			time.Sleep(time.Second)
			return registry.Image{}, &registry.Error{Kind: registry.Unavailable, Detail: "down"}
		})
		l.lookup(someServer, "one", ImageRequest{}, time.Now())
		<-told
		time.Sleep(firstLookupPause)
		if got := l.lookup(someServer, "one", ImageRequest{}, time.Now()); got.done || got.err == nil {
			t.Errorf("got %+v", got)
		}
		<-told
	})
}

// Registries that hang hold up their own images, and no others.
func TestLookupsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		var asked atomic.Int32
		l, told := startLookups(ctx, func(ctx context.Context, request ImageRequest) (registry.Image, error) {
			if request.Image == "hangs.example/image" {
				asked.Add(1)
				<-ctx.Done()
				return registry.Image{}, ctx.Err()
			}
			return registry.Image{}, nil
		})
		begin := time.Now()
		for i := range 3 * lookupsPerRegistry {
			l.lookup(types.NamespacedName{Name: "hangs", Namespace: string(rune('a' + i))}, "one", ImageRequest{Image: "hangs.example/image"}, begin)
		}
		synctest.Wait()
		l.lookup(someServer, "one", ImageRequest{Image: "works.example/image"}, begin)
		if server := <-told; server != someServer || time.Since(begin) != 0 {
			t.Errorf("told of %s after %s", server, time.Since(begin))
		}
		if asked.Load() != lookupsPerRegistry {
			t.Errorf("%d are asked at a time, want %d", asked.Load(), lookupsPerRegistry)
		}
		for range 3 * lookupsPerRegistry {
			<-told
		}
		if took := time.Since(begin); took != 3*lookupTimeout {
			t.Errorf("it took %s", took)
		}
		synctest.Wait()
		if len(l.registries) != 0 {
			t.Errorf("%d registries are kept", len(l.registries))
		}
		end()
	})
}

// A registry behind a firewall that drops packets costs a few lookups their time, and not
// each of hundreds.
func TestSilentRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const servers = 100
		var asked atomic.Int32
		var answers atomic.Bool
		l, told := startLookups(t.Context(), func(context.Context, ImageRequest) (registry.Image, error) {
			asked.Add(1)
			if answers.Load() {
				return registry.Image{Digest: "sha256:1"}, nil
			}
			time.Sleep(15 * time.Second)
			return registry.Image{}, &registry.Error{Kind: registry.Unavailable, Silent: true, Detail: "it does not answer in time"}
		})
		begin := time.Now()
		request := ImageRequest{Image: "silent.example/image"}
		name := func(i int) types.NamespacedName {
			return types.NamespacedName{Name: "server", Namespace: strconv.Itoa(i)}
		}
		for i := range servers {
			l.lookup(name(i), "one", request, begin)
		}
		for range servers {
			<-told
		}
		if took := time.Since(begin); took != 15*time.Second || asked.Load() != lookupsPerRegistry {
			t.Errorf("%d lookups took %s", asked.Load(), took)
		}
		for i := range servers {
			if got := l.lookup(name(i), "one", request, time.Now()); !got.done || got.err == nil || got.err.Detail != "it does not answer in time" {
				t.Fatalf("server %d: %+v", i, got)
			}
		}
		answers.Store(true)
		time.Sleep(silencePause)
		l.lookup(name(0), "one", request, time.Now())
		<-told
		if got := l.lookup(name(0), "one", request, time.Now()); got.image == nil {
			t.Errorf("it is not asked again: %+v", got)
		}
		synctest.Wait()
		if len(l.silent) != 0 {
			t.Errorf("%d registries are taken for silent", len(l.silent))
		}
	})
}

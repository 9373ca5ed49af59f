package prober

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// gone is what the last list of an adapter says is gone.
func (r *roll) gone(uid types.UID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lists := r.lists[uid]
	if len(lists) == 0 {
		return "no list"
	}
	named := slices.Clone(lists[len(lists)-1].Gone)
	slices.Sort(named)
	return strings.Join(named, " ")
}

func (r *roll) wantGone(t *testing.T, uid types.UID, want string) {
	t.Helper()
	if got := r.gone(uid); got != want {
		t.Errorf("the list of %s has %q as gone, want %q", uid, got, want)
	}
}

// The only pod of a server has to know that the one before it is gone, however long it takes to begin. A server that
// has lost none has no list.
func TestSinglePodKnowsWhatIsGone(t *testing.T) {
	for name, between := range map[string]time.Duration{"at once": 0, "a while later": goneFor - time.Second} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
				r := w.adapters()
				w.Watch(alpha, []Instance{pod("a")})
				w.pass(time.Minute)
				r.wantGone(t, "a", "no list")
				w.Watch(alpha, nil)
				w.pass(between)
				w.Watch(alpha, []Instance{pod("b", notReady)})
				w.pass(time.Second)
				r.want(t, "b", "b")
				r.wantGone(t, "b", "a")
				w.Watch(serverName("beta"), []Instance{pod("c")})
				w.pass(time.Minute)
				r.wantGone(t, "c", "no list")
			})
		})
	}
}

// Pods that have been gone for long are forgotten, whether the server has pods or not, and so is a pod that is back.
func TestGonePodsAreForgotten(t *testing.T) {
	inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
		r := w.adapters()
		w.Watch(alpha, []Instance{pod("a"), pod("b"), pod("c")})
		w.pass(time.Minute)
		w.Watch(alpha, []Instance{pod("b")}) // as if the manager had lost sight of c
		w.pass(time.Second)
		r.wantGone(t, "b", "a c")
		w.Watch(alpha, []Instance{pod("b"), pod("c")})
		w.pass(time.Second)
		r.want(t, "b", "b c")
		r.wantGone(t, "b", "a")
		_, count := r.of("b")
		w.pass(goneFor)
		if _, later := r.of("b"); later != count {
			t.Error("there is another list, for nothing but that a pod has been gone for long")
		}
		w.Watch(alpha, []Instance{pod("b"), pod("d")})
		w.pass(time.Second)
		r.wantGone(t, "b", "c")

		w.Watch(alpha, nil)
		w.pass(goneFor)
		w.Prober.mu.Lock()
		left := len(w.Prober.gone)
		w.Prober.mu.Unlock()
		if left != 0 {
			t.Errorf("%d servers without pods are remembered", left)
		}
		w.Watch(alpha, []Instance{pod("e")})
		w.pass(time.Minute)
		r.wantGone(t, "e", "no list")
	})
}

// However many pods go, a list names the last of them only.
func TestGonePodsAreBounded(t *testing.T) {
	inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
		r := w.adapters()
		for n := range mostGone + 3 {
			w.Watch(alpha, []Instance{pod("stays"), pod(fmt.Sprintf("p%03d", n))})
			w.pass(time.Second)
		}
		named := strings.Fields(r.gone("stays"))
		if len(named) != mostGone || named[0] != "p002" || named[mostGone-1] != "p129" {
			t.Errorf("%d are named: %s", len(named), named)
		}
	})
}

// A manager that takes over does not know which pods are gone, and says nothing of them.
func TestNewManagerKnowsNoneThatIsGone(t *testing.T) {
	inWorld(t, Options{Term: term(2)}, func(t *testing.T, w *world) {
		r := w.adapters()
		w.Watch(alpha, []Instance{pod("b"), pod("c")})
		w.pass(time.Minute)
		r.wantGone(t, "b", "")
	})
}

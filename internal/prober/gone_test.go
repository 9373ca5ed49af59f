package prober

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
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
		left := len(w.gone)
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

// If a list has no room for all pods, it has those that have to be told how to go on. The log says so once.
func TestListsWithoutRoomForAll(t *testing.T) {
	const most, less = 6000, 1000
	logged := 0
	p := &Prober{options: Options{Log: funcr.New(func(string, string) { logged++ }, funcr.Options{})}, lists: 1 << listsBits}
	s := &server{name: alpha}
	pods := make([]adapterapi.PeerPod, most)
	for n := range pods {
		pods[n] = adapterapi.PeerPod{UID: fmt.Sprintf("5f1e7a31-9d3c-4c1b-8a6e-%012d", n), Address: "10.0.0.1:16272", Ready: true, Limit: 20}
	}
	pods[most-1].Cordoned, pods[most-2].Terminating, pods[most-3].DrainSeconds, pods[most-4].Closing = true, true, 9, true
	read := func(pods []adapterapi.PeerPod) adapterapi.Peers {
		t.Helper()
		document, err := p.document(s, pods)
		if err != nil {
			t.Fatal(err)
		}
		list, err := adapterapi.DecodePeers([]byte(document.Text))
		if err != nil || len(document.Text) > adapterapi.MaxPeersBytes {
			t.Fatalf("%d bytes, %v", len(document.Text), err)
		}
		return list
	}
	for range 2 {
		list := read(pods)
		want := []adapterapi.PeerPod{pods[most-4], pods[most-3], pods[most-2], pods[most-1], pods[0], pods[1]}
		if diff := cmp.Diff(want, list.Pods[:len(want)]); diff != "" || !list.Partial || len(list.Pods) == most {
			t.Errorf("%d pods, partial: %t, the first ones (-want +got):\n%s", len(list.Pods), list.Partial, diff)
		}
		if list := read(pods[:less]); list.Partial || len(list.Pods) != less || list.Pods[0] != pods[0] {
			t.Errorf("a list of %d has %d pods, partial: %t", less, len(list.Pods), list.Partial)
		}
	}
	if logged != 1 {
		t.Errorf("%d lines are logged, want 1", logged)
	}
}

package prober

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// roll has the lists of pods that adapters have got.
type roll struct {
	mu    sync.Mutex
	lists map[types.UID][]adapterapi.Peers
	lost  map[types.UID]bool  // adapters that do not answer
	takes time.Duration       // for an answer
	whole int                 // how many answers were whole, if all are
	moves int32               // by how many sessions the load of b moves with each answer
	open  map[types.UID]int32 // their sessions, of 20
	spare map[types.UID]int64 // their spare processes
}

// adapters answer as adapters that take lists of pods.
func (w *world) adapters() *roll {
	r := &roll{lists: map[types.UID][]adapterapi.Peers{}, lost: map[types.UID]bool{}, open: map[types.UID]int32{}, spare: map[types.UID]int64{}}
	state := func(uid types.UID) *adapterapi.AccessState {
		state := &adapterapi.AccessState{Version: adapterapi.PeersVersion}
		if lists := r.lists[uid]; len(lists) > 0 {
			document, err := lists[len(lists)-1].Encode()
			if err != nil {
				w.t.Error(err)
			}
			state.Generation, state.Digest = document.Generation, document.Digest
		}
		return state
	}
	w.onFetch(func(ctx context.Context, i Instance, _ string) (reply, error) {
		if r.isLost(i.UID) {
			<-ctx.Done()
			return reply{}, class(mcpprobe.Timeout)
		}
		time.Sleep(r.takes)
		r.mu.Lock()
		defer r.mu.Unlock()
		answer := good("1", r.open[i.UID])
		answer.sessions.Spares = r.spare[i.UID]
		answer.peers = state(i.UID)
		answer.etag = fmt.Sprintf(`"%d"`, answer.peers.Generation)
		if i.UID == "b" {
			r.open["b"] = (r.open["b"] + r.moves) % 20
		}
		if r.whole > 0 {
			answer.etag = fmt.Sprintf(`"whole %d"`, r.whole)
			r.whole++
		}
		return answer, nil
	})
	w.onPush(func(ctx context.Context, i Instance, kind documentKind) (adapterapi.AccessState, error) {
		if kind != peersDocument {
			return adapterapi.AccessState{}, errors.New("only lists are to be pushed here")
		}
		if r.isLost(i.UID) {
			<-ctx.Done()
			return adapterapi.AccessState{}, class(mcpprobe.Timeout)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		list, err := adapterapi.DecodePeers([]byte(i.Peers.Text))
		if err != nil {
			w.t.Error(err)
		}
		r.lists[i.UID] = append(r.lists[i.UID], list)
		return *state(i.UID), nil
	})
	return r
}

func (r *roll) lose(uid types.UID, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost[uid] = lost
}

// setMoves sets by how many sessions the load of b moves with each answer.
func (r *roll) setMoves(sessions int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moves = sessions
}

func (r *roll) isLost(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost[uid]
}

func (r *roll) setSessions(uid types.UID, number int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[uid] = number
}

func (r *roll) setSpares(uid types.UID, number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spare[uid] = number
}

// seenByB is what the last list of pod b says of pod a, and how many lists pod b has got.
func (r *roll) seenByB(t *testing.T) (adapterapi.PeerPod, int) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	lists := r.lists["b"]
	if len(lists) == 0 {
		t.Fatal("b has no list")
	}
	last := lists[len(lists)-1].Pods
	i := slices.IndexFunc(last, func(p adapterapi.PeerPod) bool { return p.UID == "a" })
	if i < 0 {
		t.Fatalf("the list lacks a: %+v", last)
	}
	return last[i], len(lists)
}

// of returns the last list of an adapter, with a question mark behind each pod in doubt, and how many it has got.
func (r *roll) of(uid types.UID) (last string, count int) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	lists := r.lists[uid]
	if len(lists) == 0 {
		return "", 0
	}
	var names []string
	for _, pod := range lists[len(lists)-1].Pods {
		if pod.Doubted {
			pod.UID += "?"
		}
		names = append(names, pod.UID)
	}
	return strings.Join(names, " "), len(lists)
}

func (r *roll) want(t *testing.T, uid types.UID, want string) {
	t.Helper()
	if got, _ := r.of(uid); got != want {
		t.Errorf("the list of %s is %q, want %q", uid, got, want)
	}
}

func term(number int64) func(context.Context) (int64, error) {
	return func(context.Context) (int64, error) { return number, nil }
}

// Adapters learn at once which pods there are. A server with one pod needs no list, unless it had more.
func TestListOfPods(t *testing.T) {
	inWorld(t, Options{Term: term(7)}, func(t *testing.T, w *world) {
		r := w.adapters()
		w.Watch(alpha, []Instance{pod("a")})
		w.pass(time.Minute)
		r.want(t, "a", "")
		w.Watch(alpha, []Instance{pod("a"), pod("b")})
		w.pass(0)
		r.want(t, "a", "a b")
		r.want(t, "b", "a b")
		w.pass(time.Second)
		w.Watch(alpha, []Instance{pod("b")})
		w.pass(0)
		r.want(t, "b", "b")
		w.pass(5 * time.Minute)
		if _, count := r.of("b"); count != 2 {
			t.Errorf("b has got %d lists, want 2", count)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		last := int64(7 << listsBits)
		for i, list := range r.lists["b"] {
			if list.Generation <= last || list.Generation > last+2 {
				t.Errorf("list %d is of generation %d, after %d", i, list.Generation, last)
			}
			last = list.Generation
		}
	})
}

// While many pods come and go, an adapter gets no more than four lists a second, and the last one.
func TestListsAreNotPushedTooOften(t *testing.T) {
	inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
		r := w.adapters()
		pods := []Instance{pod("a"), pod("b")}
		w.Watch(alpha, pods)
		w.pass(time.Second)
		_, before := r.of("a")
		for n := range 100 {
			w.Watch(alpha, append(slices.Clone(pods), pod(fmt.Sprintf("c%d", n))))
			w.pass(10 * time.Millisecond)
		}
		w.pass(betweenLists)
		r.want(t, "a", "a b c99")
		if _, count := r.of("a"); count-before > 6 {
			t.Errorf("%d lists in %s", count-before, time.Second+betweenLists)
		}
	})
}

// A pod that the manager cannot reach is in doubt until it answers.
func TestDoubtedPods(t *testing.T) {
	inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
		r := w.adapters()
		w.Watch(alpha, []Instance{pod("a"), pod("b")})
		w.pass(time.Second)
		r.lose("b", true)
		w.pass(doubtedWithin)
		r.want(t, "a", "a b?")
		r.lose("b", false)
		w.pass(time.Minute)
		r.want(t, "a", "a b")
		r.want(t, "b", "a b")
	})
}

// Without the term of the leader there are no lists. It is asked for until it is known.
func TestTermIsFoundOut(t *testing.T) {
	attempts := 0
	inWorld(t, Options{Log: discard, Term: func(context.Context) (int64, error) {
		attempts++
		if attempts < 4 {
			return 0, errors.New("no answer")
		}
		return 1, nil
	}}, func(t *testing.T, w *world) {
		r := w.adapters()
		w.Watch(alpha, []Instance{pod("a"), pod("b")})
		w.pass(2500 * time.Millisecond)
		r.want(t, "a", "")
		w.pass(time.Second)
		r.want(t, "a", "a b")
	})
}

// An adapter with a list is asked often enough that the list counts on.
func TestListsAreRenewed(t *testing.T) {
	inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
		w.adapters()
		slow := func(i *Instance) { i.Interval = time.Hour }
		w.Watch(alpha, []Instance{pod("a", slow), pod("b", slow)})
		w.pass(time.Second)
		w.take()
		w.pass(10 * time.Minute)
		last := map[types.UID]time.Duration{"a": time.Second, "b": time.Second}
		for _, question := range w.take() {
			if gap := question.at - last[question.uid]; gap > 25*time.Second {
				t.Errorf("%s between two questions to %s", gap, question.uid)
			}
			last[question.uid] = question.at
		}
	})
}

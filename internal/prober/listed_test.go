package prober

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/promise"
)

// terminating makes an instance one whose pod was deleted.
func terminating(i *Instance) { i.Ready, i.Terminating = false, true }

// The list has what the controller knows of a pod, and what its adapter has told.
func TestWhatAListSays(t *testing.T) {
	told := func(i *Instance) {
		i.Address, i.Zone, i.Newest, i.Cordoned = "10.0.0.1:16272", "zone-1", true, true
	}
	for name, test := range map[string]struct {
		change []func(*Instance)
		want   adapterapi.PeerPod
	}{
		"ready":     {nil, adapterapi.PeerPod{UID: "a", Ready: true, Verified: true, Sessions: 7, Limit: 20}},
		"not ready": {[]func(*Instance){notReady}, adapterapi.PeerPod{UID: "a", Sessions: 7, Limit: 20}},
		"all there is": {[]func(*Instance){told}, adapterapi.PeerPod{
			UID: "a", Address: "10.0.0.1:16272", Zone: "zone-1", Ready: true, Verified: true, Newest: true, Cordoned: true, Sessions: 7, Limit: 20,
		}},
		"deleted": {[]func(*Instance){terminating, func(i *Instance) { i.DrainSeconds, i.Closing = 12, true }}, adapterapi.PeerPod{
			UID: "a", Terminating: true, DrainSeconds: 12, Closing: true, Sessions: 7, Limit: 20,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
				r := w.adapters()
				r.setSessions("a", 7)
				w.Watch(alpha, []Instance{pod("a"), pod("b")})
				w.pass(time.Minute)
				w.Watch(alpha, []Instance{pod("a", test.change...), pod("b")})
				w.pass(time.Minute)
				got, _ := r.seenByB(t)
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A pod that was deleted is asked on, so that its sessions count. It is not verified any more, and what it says of its
// server is no verdict.
func TestDeletedPodsAreAskedOn(t *testing.T) {
	inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
		r := w.adapters()
		slow := func(i *Instance) { i.Interval = time.Hour }
		w.Watch(alpha, []Instance{pod("a", slow), pod("b", slow)})
		w.pass(time.Minute)
		w.Watch(alpha, []Instance{pod("a", slow, terminating), pod("b", slow)})
		w.pass(10 * time.Minute)
		r.setSessions("a", 3)
		w.take()
		w.pass(25 * time.Second)
		if got := w.result("a").Sessions.Open; got != 3 {
			t.Errorf("%d sessions, want 3", got)
		}
		var asked int
		for _, question := range w.take() {
			if question.uid == "a" && question.kind == kindVerify {
				t.Error("it is verified")
			}
			if question.uid == "a" {
				asked++
			}
		}
		if asked == 0 {
			t.Error("it is not asked, so its list does not count on")
		}
		w.replyWith(bad(string(adapterapi.Exited), "the server has ended"))
		w.pass(time.Minute)
		w.wantOutcome("a", Verified, "")
	})
}

// The pod of a server that has no other gets a list when it has to be told how to end, and not before.
func TestSinglePodIsToldHowToEnd(t *testing.T) {
	for name, tell := range map[string]func(*Instance){
		"less time": func(i *Instance) { i.DrainSeconds = 7 },
		"closing":   func(i *Instance) { i.Closing = true },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
				r := w.adapters()
				w.Watch(alpha, []Instance{pod("a")})
				w.pass(time.Minute)
				w.Watch(alpha, []Instance{pod("a", terminating)})
				w.pass(time.Minute)
				r.want(t, "a", "")
				w.Watch(alpha, []Instance{pod("a", terminating, tell)})
				w.pass(0)
				r.want(t, "a", "a")
			})
		})
	}
}

// Whatever happens to a pod, the others know in time.
func TestListsAreSentAtOnce(t *testing.T) {
	before := []Instance{pod("a"), pod("b"), pod("c", notReady)}
	for name, after := range map[string][]Instance{
		"it comes":         {pod("a"), pod("b"), pod("c", notReady), pod("d", notReady)},
		"it becomes ready": {pod("a"), pod("b"), pod("c")},
		"it is deleted":    {pod("a"), pod("b", terminating), pod("c", notReady)},
		"it is cordoned":   {pod("a"), pod("b", func(i *Instance) { i.Cordoned = true }), pod("c", notReady)},
		"it is gone":       {pod("a"), pod("c", notReady)},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
				r := w.adapters()
				w.Watch(alpha, before)
				w.pass(time.Minute)
				_, had := r.of("a")
				w.Watch(alpha, after)
				w.pass(promise.ListPushed)
				if _, has := r.of("a"); has == had {
					t.Errorf("no list within %s", promise.ListPushed)
				}
			})
		})
	}
}

// doubtedWithin is enough for the longest pause between two requests and the timeout of one.
const doubtedWithin = 17 * time.Second

// Pods answer 404 for the sessions of a pod only when the manager misses that pod, too.
func TestLostPodIsDoubtedInTime(t *testing.T) {
	for name, moves := range map[string]int32{
		"while nothing changes": 0,
		"while loads change":    2, // each list is followed by another one, and the lost pod lacks them all
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
				r := w.adapters()
				r.whole, r.takes = 1, betweenLists
				w.Watch(alpha, []Instance{pod("a"), pod("b")})
				for range 20 {
					w.pass(time.Hour) // the pauses between requests grow with whole answers that say nothing new
					r.lose("a", true)
					r.setMoves(moves)
					w.pass(doubtedWithin)
					if got, _ := r.seenByB(t); !got.Doubted {
						t.Errorf("the list does not doubt the lost pod after %s", doubtedWithin)
					}
					r.lose("a", false)
					r.setMoves(0)
				}
			})
		})
	}
}

// A pod that does not take a list in time is in doubt at once: a request after that could time out too late.
func TestPodThatTakesNoListIsDoubted(t *testing.T) {
	inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
		r := w.adapters()
		w.Watch(alpha, []Instance{pod("a"), pod("b")})
		w.pass(time.Minute)
		r.lose("a", true)
		w.Watch(alpha, []Instance{pod("a"), pod("b", func(i *Instance) { i.Cordoned = true })})
		w.pass(defaultTimeout + time.Second)
		if got, _ := r.seenByB(t); !got.Doubted {
			t.Error("the list does not doubt the pod")
		}
	})
}

// A load alone is worth a list only when it moves by a tenth of the limit, or to or from none or the limit.
func TestLoadsInLists(t *testing.T) {
	for name, test := range map[string]struct {
		was, is int32 // of 20
		told    bool
	}{
		"the same":         {5, 5, false},
		"one more":         {5, 6, false},
		"a tenth more":     {5, 7, true},
		"a tenth less":     {7, 5, true},
		"the first":        {0, 1, true},
		"the last is over": {1, 0, true},
		"full":             {19, 20, true},
		"no longer full":   {20, 19, true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
				r := w.adapters()
				r.setSessions("a", test.was)
				w.Watch(alpha, []Instance{pod("a"), pod("b")})
				w.pass(time.Minute)
				_, before := r.seenByB(t)
				r.setSessions("a", test.is)
				w.pass(time.Minute)
				got, after := r.seenByB(t)
				if told := after > before; told != test.told || told && got.Sessions != int64(test.is) {
					t.Errorf("told: %t (%d sessions), want %t", told, got.Sessions, test.told)
				}
				// Another list has the load as it is.
				w.Watch(alpha, []Instance{pod("a"), pod("b"), pod("c")})
				w.pass(time.Second)
				if got, _ := r.seenByB(t); got.Sessions != int64(test.is) {
					t.Errorf("%d sessions in another list, want %d", got.Sessions, test.is)
				}
			})
		})
	}
}

// So are spare processes: what counts is whether there is one.
func TestSparesInLists(t *testing.T) {
	for name, test := range map[string]struct {
		was, is int64
		told    bool
	}{
		"the same":     {1, 1, false},
		"one more":     {1, 2, false},
		"the first":    {0, 1, true},
		"no more":      {2, 0, true},
		"none as ever": {0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
				r := w.adapters()
				r.setSpares("a", test.was)
				w.Watch(alpha, []Instance{pod("a"), pod("b")})
				w.pass(time.Minute)
				_, before := r.seenByB(t)
				r.setSpares("a", test.is)
				w.pass(time.Minute)
				got, after := r.seenByB(t)
				if told := after > before; told != test.told || told && got.Spares != test.is {
					t.Errorf("told: %t (%d spares), want %t", told, got.Spares, test.told)
				}
			})
		})
	}
}

// However much the loads of a large server move, its lists do not take more than all else.
func TestListsOfALargeServer(t *testing.T) {
	inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
		r := w.adapters()
		const number, minutes = 30, 1
		eager := func(i *Instance) { i.Interval, i.Stored = time.Second, "1" } // its catalog need not be read again
		var pods []Instance
		for n := range number {
			pods = append(pods, pod(fmt.Sprintf("p%03d", n), eager))
		}
		w.Watch(alpha, pods)
		w.pass(time.Minute)
		_, before := r.of("p000")
		for round := range minutes * 60 {
			for n := range number {
				r.setSessions(types.UID(fmt.Sprintf("p%03d", n)), int32((round+n)%21))
			}
			w.pass(time.Second)
		}
		_, after := r.of("p000")
		if lists, most := after-before, int(minutes*time.Minute/(number*betweenLoads))+1; lists > most || lists == 0 {
			t.Errorf("%d lists in %d minutes, want some, and at most %d", lists, minutes, most)
		}
	})
}

// A pod in doubt that ends is still in the list.
func TestDeletedPodThatIsSilent(t *testing.T) {
	inWorld(t, Options{Term: term(1)}, func(t *testing.T, w *world) {
		r := w.adapters()
		r.setSessions("a", 2)
		w.Watch(alpha, []Instance{pod("a"), pod("b")})
		w.pass(time.Minute)
		r.lose("a", true)
		w.Watch(alpha, []Instance{pod("a", terminating), pod("b")})
		w.pass(time.Minute)
		got, _ := r.seenByB(t)
		if want := (adapterapi.PeerPod{UID: "a", Terminating: true, Doubted: true, Sessions: 2, Limit: 20}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if sessions := w.result("a").Sessions.Open; sessions != 2 {
			t.Errorf("%d sessions, want 2 until it is gone", sessions)
		}
	})
}

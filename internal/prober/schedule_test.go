package prober

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// within says whether a question came at about that time, jitter of a tenth allowed.
func within(got, want time.Duration) bool {
	return got >= want-want/10-time.Millisecond && got <= want+want/10+time.Millisecond
}

func checkTimes(t *testing.T, questions []asked, kind string, waits ...time.Duration) {
	t.Helper()
	var at []time.Duration
	for _, q := range questions {
		if q.kind == kind {
			at = append(at, q.at)
		}
	}
	if len(at) < len(waits) {
		t.Fatalf("got %d questions of kind %s, want %d: %v", len(at), kind, len(waits), questions)
	}
	before := time.Duration(0)
	for i, wait := range waits {
		if !within(at[i]-before, wait) {
			t.Errorf("question %d came %v after the one before, want about %v", i, at[i]-before, wait)
		}
		before = at[i]
	}
}

func TestAReadyInstanceIsVerifiedOnceAndThenPolled(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.Watch(alpha, []Instance{pod("a")})
		w.wantOutcome("a", Verified, "")
		if got := kinds(w.take()); got != "v@0 c@0 " {
			t.Errorf("at once got %s", got)
		}
		if told := w.takeTold(); told != 1 {
			t.Errorf("was told %d times, want once: both answers belong together", told)
		}
		w.pass(10 * time.Minute)
		questions := w.take()
		if len(questions) < 55 || len(questions) > 66 {
			t.Errorf("got %d questions in 10 minutes", len(questions))
		}
		early, late := 0, 0
		for i, q := range questions {
			if q.kind != kindCatalog || q.tag != `"1"` {
				t.Fatalf("got question %+v", q)
			}
			if i > 0 {
				wait := q.at - questions[i-1].at
				if !within(wait, 10*time.Second) {
					t.Errorf("got an interval of %v", wait)
				}
				if wait < 9900*time.Millisecond {
					early++
				} else if wait > 10100*time.Millisecond {
					late++
				}
			}
		}
		if early == 0 || late == 0 {
			t.Error("there is no jitter")
		}
		if told := w.takeTold(); told != 0 {
			t.Errorf("was told %d times of nothing", told)
		}
	})
}

func TestAnInstanceThatIsNotReadyIsAskedWhy(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.replyWith(bad("Exited", "exit status 1"))
		w.Watch(alpha, []Instance{pod("a", notReady)})
		w.wantOutcome("a", Pending, "")
		w.pass(time.Minute)
		w.wantOutcome("a", Failed, "exit status 1")
		questions := w.take()
		for _, q := range questions {
			if q.kind != kindCatalog {
				t.Errorf("got question %+v", q)
			}
		}
		checkTimes(t, questions, kindCatalog, 500*time.Millisecond, time.Second, 2*time.Second, 4*time.Second, 8*time.Second, 10*time.Second, 10*time.Second)
		if told := w.takeTold(); told != 1 {
			t.Errorf("was told %d times, want once", told)
		}
		// What was wrong is over, and the pod is ready: it is verified at once.
		w.replyWith(good("1", 0))
		w.Watch(alpha, []Instance{pod("a")})
		w.wantOutcome("a", Verified, "")
	})
}

func TestStartingIsNoFailure(t *testing.T) {
	inWorld(t, Options{}, func(_ *testing.T, w *world) {
		w.replyWith(bad(string(adapterapi.Starting), "the server is starting"))
		w.Watch(alpha, []Instance{pod("a", notReady)})
		w.pass(time.Second)
		w.wantOutcome("a", Pending, "the server is starting")
		w.replyWith(bad(string(adapterapi.NoRoom), "there is no room"))
		w.pass(10 * time.Second)
		w.wantOutcome("a", Full, "there is no room")
		w.replyWith(good("1", 0))
		w.pass(11 * time.Second)
		w.wantOutcome("a", Pending, "") // until the pod is ready
	})
}

func TestAFailedVerificationIsTriedAgain(t *testing.T) {
	for c, want := range map[mcpprobe.Class]struct {
		outcome Outcome
		message string
	}{
		mcpprobe.Timeout:      {Failed, "the server did not answer initialize within 5s"},
		mcpprobe.Protocol:     {Failed, "probe connect: Protocol (HTTP 599)"},
		mcpprobe.Rejected:     {Failed, "probe connect: Rejected (HTTP 599)"},
		mcpprobe.TooLarge:     {Failed, "probe connect: TooLarge (HTTP 599)"},
		mcpprobe.Closed:       {Failed, "probe connect: Closed (HTTP 599)"},
		mcpprobe.Busy:         {Full, "the pod answers HTTP 599: it takes no further session at the moment"},
		mcpprobe.Unauthorized: {Unauthorized, "the server answers HTTP 599: it wants credentials that the manager does not have"},
		mcpprobe.Unreachable:  {Unreachable, "the manager cannot connect to port 16270 of the pod; a NetworkPolicy that keeps it out is a common cause"},
	} {
		t.Run(string(c), func(t *testing.T) {
			inWorld(t, Options{}, func(t *testing.T, w *world) {
				w.onVerify(func(context.Context, Instance) error { return class(c) })
				w.Watch(alpha, []Instance{pod("a", func(i *Instance) { i.Interval = time.Hour })})
				w.wantOutcome("a", want.outcome, want.message)
				w.pass(3 * time.Minute)
				checkTimes(t, w.take(), kindVerify, 0, time.Second, 2*time.Second, 4*time.Second, 8*time.Second, 16*time.Second, 30*time.Second, 30*time.Second)
				if told := w.takeTold(); told != 1 {
					t.Errorf("was told %d times, want once", told)
				}
				w.onVerify(func(context.Context, Instance) error { return nil })
				w.pass(34 * time.Second)
				w.wantOutcome("a", Verified, "")
			})
		})
	}
}

func TestTheCatalogIsPolledWhileVerificationFails(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.onVerify(func(context.Context, Instance) error { return class(mcpprobe.Protocol) })
		w.Watch(alpha, []Instance{pod("a")})
		w.pass(5 * time.Minute)
		w.take()
		w.pass(time.Minute)
		asks := 0
		for _, q := range w.take() {
			if q.kind == kindCatalog {
				asks++
			}
		}
		if asks < 5 {
			t.Errorf("got %d questions for the catalog in a minute", asks)
		}
	})
}

// A verification that takes nearly all of its time leaves too little for the catalog. The
// prober then asks for the catalog alone, and reports no failure.
func TestTheCatalogHasTimeOfItsOwn(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.onVerify(func(context.Context, Instance) error { time.Sleep(4900 * time.Millisecond); return nil })
		w.onFetch(func(ctx context.Context, _ Instance, _ string) (reply, error) {
			select {
			case <-ctx.Done():
				return reply{}, failure(mcpprobe.Timeout, 0, "")
			case <-time.After(time.Second):
				return good("1", 0), nil
			}
		})
		w.Watch(alpha, []Instance{pod("a")})
		w.pass(6100 * time.Millisecond)
		w.wantOutcome("a", Verified, "")
		if got := w.take(); kinds(got) != "v@0 "+strings.Repeat("c@5 ", 2) || w.result("a").Catalog == nil {
			t.Errorf("got %s and %+v", kinds(got), w.result("a"))
		}
	})
}

func TestRetryAfterIsHeeded(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.onVerify(func(context.Context, Instance) error {
			return &mcpprobe.Error{Class: mcpprobe.Busy, RetryAfter: 20 * time.Second}
		})
		w.Watch(alpha, []Instance{pod("a")})
		w.pass(time.Minute)
		checkTimes(t, w.take(), kindVerify, 0, 20*time.Second)
	})
}

func TestASuccessIsNotUndoneAtOnce(t *testing.T) {
	for _, c := range []mcpprobe.Class{mcpprobe.Busy, mcpprobe.Unauthorized, mcpprobe.Unreachable} {
		t.Run(string(c), func(t *testing.T) {
			inWorld(t, Options{}, func(t *testing.T, w *world) {
				w.Watch(alpha, []Instance{pod("a")})
				w.pass(2 * time.Second)
				w.onVerify(func(context.Context, Instance) error { return class(c) })
				w.Watch(alpha, []Instance{pod("a", func(i *Instance) { i.Refresh = "1" })}) // first
				w.pass(1500 * time.Millisecond)                                             // second
				w.wantOutcome("a", Verified, "")
				w.onVerify(func(context.Context, Instance) error { return nil })
				w.pass(3 * time.Second)
				w.onVerify(func(context.Context, Instance) error { return class(c) })
				w.Watch(alpha, []Instance{pod("a", func(i *Instance) { i.Refresh = "2" })})
				w.pass(1500 * time.Millisecond)
				w.wantOutcome("a", Verified, "") // the success in between counts
				w.pass(2 * time.Second)          // third
				if got := w.result("a").Outcome; got == Verified {
					t.Errorf("got %s after three failures in a row", got)
				}
			})
		})
	}
	t.Run("a timeout is", func(t *testing.T) {
		inWorld(t, Options{}, func(_ *testing.T, w *world) {
			w.Watch(alpha, []Instance{pod("a")})
			w.pass(2 * time.Second)
			w.onVerify(func(context.Context, Instance) error { return class(mcpprobe.Timeout) })
			w.Watch(alpha, []Instance{pod("a", func(i *Instance) { i.Starts = 1 })})
			w.wantOutcome("a", Failed, "the server did not answer initialize within 5s")
		})
	})
}

func TestTheAdaptersWordCounts(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.Watch(alpha, []Instance{pod("a")})
		w.wantOutcome("a", Verified, "")
		w.replyWith(bad("Silent", "it does not answer"))
		w.pass(12 * time.Second)
		w.wantOutcome("a", Failed, "it does not answer")
		w.take()
		w.pass(30 * time.Second)
		for _, q := range w.take() {
			if q.kind == kindVerify {
				t.Error("was verified while the adapter says that there is no use")
			}
		}
		w.takeTold()
		w.replyWith(good("1", 0))
		w.pass(11 * time.Second)
		w.wantOutcome("a", Verified, "")
		if questions := w.take(); !slices.ContainsFunc(questions, func(q asked) bool { return q.kind == kindVerify }) {
			t.Error("was not verified again")
		}
	})
}

func TestChangesAskForAVerification(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Instance)
		want   bool
	}{
		"nothing":  {func(*Instance) {}, false},
		"starts":   {func(i *Instance) { i.Starts++ }, true},
		"refresh":  {func(i *Instance) { i.Refresh = "now" }, true},
		"address":  {func(i *Instance) { i.IP = "10.0.0.2" }, true},
		"key":      {func(i *Instance) { i.Key = adapterapi.NewKey() }, true},
		"stored":   {func(i *Instance) { i.Stored = "1" }, false},
		"interval": {func(i *Instance) { i.Interval = time.Minute }, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{}, func(t *testing.T, w *world) {
				w.Watch(alpha, []Instance{pod("a")})
				w.pass(5 * time.Second)
				first := w.take()
				before := w.result("a")
				w.Watch(alpha, []Instance{pod("a", test.change)})
				questions := w.take()
				if got := len(questions) > 0 && questions[0].kind == kindVerify; got != test.want {
					t.Errorf("after %v got %v, want a verification: %v", first, questions, test.want)
				}
				if after := w.result("a"); after.Outcome != before.Outcome {
					t.Errorf("got %s", after.Outcome)
				}
				if name == "nothing" {
					w.pass(6100 * time.Millisecond)
					checkTimes(t, append(first[1:], w.take()...), kindCatalog, 0, 10*time.Second)
				}
			})
		})
	}
	t.Run("becoming ready", func(t *testing.T) {
		inWorld(t, Options{}, func(_ *testing.T, w *world) {
			for range 3 {
				w.Watch(alpha, []Instance{pod("a", notReady)})
				w.pass(time.Second)
				w.take()
				w.Watch(alpha, []Instance{pod("a")})
				if got := w.take(); len(got) == 0 || got[0].kind != kindVerify {
					w.t.Errorf("got %v, want a verification at once", got)
				}
			}
		})
	})
}

func TestAShorterIntervalCountsAtOnce(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.Watch(alpha, []Instance{pod("a", func(i *Instance) { i.Interval = time.Hour })})
		w.take()
		w.Watch(alpha, []Instance{pod("a", func(i *Instance) { i.Interval = time.Second })})
		w.pass(10 * time.Second)
		if got := len(w.take()); got < 9 {
			t.Errorf("got %d questions", got)
		}
	})
}

func TestAChangeWhileItIsAskedDropsTheAnswer(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		canceled := false
		w.onVerify(func(ctx context.Context, i Instance) error {
			if i.Key == key {
				<-ctx.Done()
				canceled = errors.Is(ctx.Err(), context.Canceled)
				return class(mcpprobe.Protocol)
			}
			return nil
		})
		w.Watch(alpha, []Instance{pod("a")})
		w.pass(time.Second)
		w.Watch(alpha, []Instance{pod("a", func(i *Instance) { i.Key = adapterapi.NewKey() })})
		w.pass(100 * time.Millisecond)
		w.wantOutcome("a", Verified, "")
		if !canceled {
			t.Error("the outdated request was not canceled")
		}
		if told := w.takeTold(); told != 1 {
			t.Errorf("was told %d times, want once", told)
		}
	})
}

func TestWhatIsGoneIsForgotten(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.Watch(alpha, []Instance{pod("a"), pod("b")})
		w.pass(time.Second)
		w.Watch(alpha, []Instance{pod("b")})
		if got := w.Results(alpha); len(got) != 1 || got["b"].Outcome != Verified {
			t.Errorf("got %v", got)
		}
		w.take()
		w.pass(time.Minute)
		for _, q := range w.take() {
			if q.uid == "a" {
				t.Error("who is gone was asked")
			}
		}
		// One that is being asked.
		stopped := false
		w.onVerify(func(ctx context.Context, _ Instance) error {
			<-ctx.Done()
			stopped = errors.Is(ctx.Err(), context.Canceled)
			return class(mcpprobe.Timeout)
		})
		w.Watch(alpha, []Instance{pod("c")})
		w.pass(time.Second)
		w.takeTold()
		w.Watch(alpha, nil)
		synctest.Wait()
		if !stopped {
			t.Error("it is still asked")
		}
		w.pass(time.Minute)
		if w.Results(alpha) != nil || w.takeTold() != 0 || len(w.servers) != 0 || len(w.queue) != 0 || w.busy != 0 {
			t.Errorf("something is left: %+v", w.Prober)
		}
	})
}

// While all instances of one server hang, those of others are asked in time, and a
// server has no more than a quarter of the workers.
func TestShareOfAServer(t *testing.T) {
	inWorld(t, Options{Workers: 8, Log: discard}, func(t *testing.T, w *world) {
		busy, most := 0, 0
		w.onVerify(func(ctx context.Context, i Instance) error {
			if i.Pod.Name[0] != 'h' {
				return nil
			}
			w.mu.Lock()
			busy++
			most = max(most, busy)
			w.mu.Unlock()
			<-ctx.Done()
			w.mu.Lock()
			busy--
			w.mu.Unlock()
			return class(mcpprobe.Timeout)
		})
		var hanging []Instance
		for n := range 50 {
			hanging = append(hanging, pod(fmt.Sprintf("h%d", n)))
		}
		w.Watch(serverName("hanging"), hanging)
		w.pass(100 * time.Millisecond)
		w.Watch(alpha, []Instance{pod("a")})
		w.pass(100 * time.Millisecond)
		w.wantOutcome("a", Verified, "")
		w.take()
		w.pass(5 * time.Minute)
		checkInTime(t, w.take(), "a")
		if most != 2 {
			t.Errorf("a server had %d workers, want 2 of 8", most)
		}
		for uid, result := range w.Results(serverName("hanging")) {
			if result.Outcome != Failed {
				t.Errorf("%s was never asked: %s", uid, result.Outcome)
			}
		}
	})
}

// checkInTime fails if an instance waited much longer than its interval.
func checkInTime(t *testing.T, questions []asked, uid types.UID) {
	t.Helper()
	var before time.Duration
	for _, q := range questions {
		if q.uid != uid {
			continue
		}
		if before != 0 && q.at-before > 11100*time.Millisecond {
			t.Errorf("was asked after %v", q.at-before)
		}
		before = q.at
	}
	if before == 0 {
		t.Error("was not asked at all")
	}
}

// Many servers that hang have half of the workers, once they are known to.
func TestShareOfThoseWhoHang(t *testing.T) {
	inWorld(t, Options{Workers: 8, Log: discard}, func(t *testing.T, w *world) {
		busy, most := 0, 0
		hang := func(ctx context.Context, i Instance) error {
			if i.Pod.Name[0] != 'h' {
				return nil
			}
			w.mu.Lock()
			busy++
			most = max(most, busy)
			w.mu.Unlock()
			<-ctx.Done()
			w.mu.Lock()
			busy--
			w.mu.Unlock()
			return class(mcpprobe.Timeout)
		}
		w.onVerify(hang)
		w.onFetch(func(ctx context.Context, i Instance, _ string) (reply, error) {
			if err := hang(ctx, i); err != nil {
				return reply{}, err
			}
			return good("1", 0), nil
		})
		for n := range 100 {
			w.Watch(serverName(fmt.Sprintf("h%d", n)), []Instance{pod(fmt.Sprintf("h%d", n))})
		}
		w.Watch(alpha, []Instance{pod("a")})
		w.pass(10 * time.Minute) // all are known
		w.mu.Lock()
		most = 0
		w.mu.Unlock()
		w.take()
		w.pass(10 * time.Minute)
		questions := w.take()
		checkInTime(t, questions, "a")
		if most != 4 {
			t.Errorf("those who hang had %d workers, want 4 of 8", most)
		}
		seen := map[types.UID]bool{}
		for _, q := range questions {
			seen[q.uid] = true
		}
		if len(seen) != 101 {
			t.Errorf("got %d instances asked, want all 101", len(seen))
		}
	})
}

func TestOneQuestionAtATime(t *testing.T) {
	inWorld(t, Options{Log: discard}, func(t *testing.T, w *world) {
		busy := map[types.UID]int{}
		ask := func(ctx context.Context, i Instance) error {
			w.mu.Lock()
			busy[i.UID]++
			if busy[i.UID] > 1 {
				t.Error("an instance was asked twice at a time")
			}
			w.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
			w.mu.Lock()
			busy[i.UID]--
			w.mu.Unlock()
			return ctx.Err()
		}
		w.onVerify(ask)
		w.onFetch(func(ctx context.Context, i Instance, _ string) (reply, error) { return good("1", 0), ask(ctx, i) })
		for n := range 300 {
			w.Watch(alpha, []Instance{pod("a", func(i *Instance) { i.Starts = int32(n / 3); i.Ready = n%7 != 0 }), pod("b")})
			w.pass(170 * time.Millisecond)
		}
	})
}

func TestStartTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Options{})
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- p.Start(ctx) }()
		synctest.Wait()
		if p.Start(ctx) == nil {
			t.Error("got no error")
		}
		cancel()
		if err := <-over; err != nil || !p.NeedLeaderElection() {
			t.Error(err)
		}
	})
}

package places

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// session is an occupant.
type session struct {
	place *Place

	mu    sync.Mutex
	since time.Time
	use   Use
	busy  bool
	ended bool
}

func (s *session) Idle() (since time.Time, use Use, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since, s.use, !s.busy
}

func (s *session) Yield(since time.Time) bool {
	s.mu.Lock()
	if s.busy || s.ended || !s.since.Equal(since) {
		s.mu.Unlock()
		return false
	}
	s.ended = true
	s.mu.Unlock()
	s.place.Leave()
	return true
}

func (s *session) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Now()
}

func (s *session) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

func open(t *testing.T, p *Places, key string, use Use) *session {
	t.Helper()
	place, err := p.Take(t.Context(), key)
	if err != nil {
		t.Fatalf("no place for %s: %v", key, err)
	}
	s := &session{place: place, since: time.Now(), use: use}
	place.Fill(s)
	return s
}

func newPlaces(most int) *Places { return New(Options{Max: most, Patience: Patience}) }

// Sessions that lose least end first, none before it has been idle for its time, and one
// for each newcomer.
func TestWhoMakesRoom(t *testing.T) {
	type occupant struct {
		key  string
		use  Use
		idle time.Duration
		busy bool
	}
	worked := func(idle time.Duration) occupant { return occupant{"a", Worked, idle, false} }
	for name, test := range map[string]struct {
		there []occupant
		key   string // of the newcomer
		ends  int    // which of them; -1 is none
		waits time.Duration
	}{
		"one that never said it is initialized": {
			[]occupant{worked(time.Hour), {"a", Listed, time.Hour, false}, {"a", Opened, 6 * time.Second, false}}, "a", 2, 0,
		},
		"one that only listed":             {[]occupant{worked(time.Hour), {"a", Listed, 6 * time.Second, false}}, "a", 1, 0},
		"one that worked, after a minute":  {[]occupant{worked(time.Minute), worked(59 * time.Second)}, "a", 0, 0},
		"the one that is idle longest":     {[]occupant{worked(2 * time.Minute), worked(3 * time.Minute)}, "a", 1, 0},
		"one that listed, once it is idle": {[]occupant{worked(0), {"a", Listed, 2 * time.Second, false}}, "a", 1, 3 * time.Second},
		"none that worked a moment ago":    {[]occupant{worked(40 * time.Second)}, "a", -1, Patience},
		"none that is used":                {[]occupant{{"a", Worked, time.Hour, true}, {"a", Opened, time.Hour, true}}, "b", -1, Patience},
		"of the key that has most":         {[]occupant{{"b", Opened, time.Hour, false}, worked(6 * time.Second), worked(7 * time.Second)}, "c", 2, 0},
		"a key that has no more":           {[]occupant{worked(6 * time.Second)}, "b", -1, Patience},
		"not for one who has as many":      {[]occupant{worked(6 * time.Second), {"b", Worked, 6 * time.Second, true}}, "b", -1, Patience},
		"none of a key that has fewer":     {[]occupant{{"b", Opened, time.Hour, false}, {"a", Worked, 0, true}, {"a", Worked, 0, true}}, "a", -1, Patience},
		"a key gives way to itself, too":   {[]occupant{{"a", Opened, 6 * time.Second, false}}, "a", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlaces(len(test.there))
				var there []*session
				for _, o := range test.there {
					s := open(t, p, o.key, o.use)
					s.since, s.busy = time.Now().Add(-o.idle), o.busy
					there = append(there, s)
				}
				began := time.Now()
				place, err := p.Take(t.Context(), test.key)
				if took := time.Since(began); took < test.waits || took > test.waits+evictInterval {
					t.Errorf("it took %s, want %s", took, test.waits)
				}
				if full := test.ends < 0; full != errors.Is(err, ErrFull) || full != (place == nil) {
					t.Errorf("got %v, %v", place, err)
				}
				for i, s := range there {
					if s.isOver() != (i == test.ends) {
						t.Errorf("session %d ended: %v", i, s.isOver())
					}
				}
				if len(p.taken) != len(test.there) {
					t.Errorf("%d places are taken of %d", len(p.taken), len(test.there))
				}
			})
		})
	}
}

// A refusal says when a place may be free.
func TestWhenToTryAgain(t *testing.T) {
	for name, test := range map[string]struct {
		use  Use
		idle time.Duration
		busy bool
		want time.Duration
	}{
		"all are used":         {Worked, 0, true, busyRetry},
		"idle for a moment":    {Worked, 0, false, workedIdle - Patience},
		"idle for some time":   {Worked, 30*time.Second + time.Millisecond, false, 20 * time.Second},
		"idle for almost long": {Worked, workedIdle - Patience - time.Millisecond, false, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlaces(1)
				s := open(t, p, "a", test.use)
				s.since, s.busy = time.Now().Add(-test.idle), test.busy
				_, err := p.Take(t.Context(), "a")
				full, ok := errors.AsType[*FullError](err)
				if !ok || full.RetryAfter != test.want || p.Refused() != 1 {
					t.Errorf("got %v, %+v, refused %d, want %s", err, full, p.Refused(), test.want)
				}
			})
		})
	}
}

// As many sessions end as newcomers come, and each newcomer gets a place.
func TestOneEndsForEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, newcomers = 20, 7
		p := newPlaces(most)
		var there []*session
		for range most {
			there = append(there, open(t, p, "a", Listed))
		}
		time.Sleep(leastIdle)
		var running sync.WaitGroup
		for i := range newcomers {
			running.Go(func() {
				if _, err := p.Take(t.Context(), fmt.Sprint("key ", i)); err != nil {
					t.Errorf("newcomer %d: %v", i, err)
				}
			})
		}
		running.Wait()
		over := 0
		for _, s := range there {
			if s.isOver() {
				over++
			}
		}
		if over != newcomers || p.Evicted(Listed) != newcomers || p.Taken() != most {
			t.Errorf("%d ended, %d counted, %d places taken; want %d, as many, and %d", over, p.Evicted(Listed), p.Taken(), newcomers, most)
		}
	})
}

// A place that becomes free goes to the client that has fewest, and among these to the one
// that waits longest.
func TestWhoIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(2)
		first, second := open(t, p, "a", Worked), open(t, p, "a", Worked)
		first.busy, second.busy = true, true
		order := make(chan string, 3)
		for _, key := range []string{"a", "b", "c"} {
			go func() {
				place, err := p.Take(t.Context(), key)
				if err != nil {
					order <- err.Error()
					return
				}
				order <- key
				place.Leave()
			}()
			synctest.Wait()
		}
		first.place.Leave()
		first.place.Leave()
		for _, want := range []string{"b", "c", "a"} {
			if got := <-order; got != want {
				t.Errorf("next is %s, want %s", got, want)
			}
		}
	})
}

// usedWhenLookedAt is a session that its client uses right after Idle returns, a number of times.
type usedWhenLookedAt struct {
	session
	times int
}

func (s *usedWhenLookedAt) Idle() (since time.Time, use Use, idle bool) {
	since, use, idle = s.session.Idle()
	if time.Since(since) >= leastIdle && s.times > 0 {
		s.times--
		s.touch()
	}
	return since, use, idle
}

// A session that is used in the moment in which it would end goes on.
func TestUsedInThatMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(1)
		place, err := p.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		s := &usedWhenLookedAt{session: session{place: place, since: time.Now(), use: Listed}, times: 1}
		place.Fill(s)
		time.Sleep(leastIdle)
		began := time.Now()
		if _, err := p.Take(t.Context(), "a"); err != nil || time.Since(began) < leastIdle {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
		if !s.isOver() || p.Evicted(Listed) != 1 {
			t.Errorf("it ended: %v, and %d are counted", s.isOver(), p.Evicted(Listed))
		}
	})
}

func TestWaitingEnds(t *testing.T) {
	closed := errors.New("closed")
	for name, test := range map[string]struct {
		stop    func(p *Places, cancel func())
		want    error
		refused uint64
	}{
		"with the client":   {func(_ *Places, cancel func()) { cancel() }, context.Canceled, 1},
		"with the instance": {func(p *Places, _ func()) { p.Close(closed); p.Close(errors.New("again")) }, closed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlaces(1)
				there := open(t, p, "a", Worked)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() {
					_, err := p.Take(ctx, "b")
					ended <- err
				}()
				synctest.Wait()
				test.stop(p, cancel)
				if err := <-ended; !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
				there.place.Leave()
				if p.Taken() != 0 || p.Refused() != test.refused {
					t.Errorf("%d places are taken, %d refused", p.Taken(), p.Refused())
				}
			})
		})
	}
}

// However many come, only some of them wait.
func TestFewWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(1)
		open(t, p, "a", Worked).busy = true
		refusedAtOnce := func(key string) bool {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := p.Take(ctx, key)
			return errors.Is(err, ErrFull) && time.Since(began) == 0
		}
		for i := range mostWaiting {
			key := strconv.Itoa(i / mostOfKey)
			go func() { _, _ = p.Take(t.Context(), key) }()
			synctest.Wait()
			if i == mostOfKey-1 && !refusedAtOnce(key) {
				t.Error("one more of a key waits")
			}
		}
		if len(p.waiting) != mostWaiting || !refusedAtOnce("another") {
			t.Errorf("%d wait, and one more", len(p.waiting))
		}
		time.Sleep(Patience + evictInterval)
	})
}

func TestUseOf(t *testing.T) {
	for method, want := range map[string]Use{
		"initialize": Opened, "notifications/initialized": Listed, "ping": Listed, "tools/list": Listed, "resources/templates/list": Listed,
		"tools/call": Worked, "resources/subscribe": Worked, "logging/setLevel": Worked, "": Worked,
	} {
		if got := UseOf(method); got != want {
			t.Errorf("%q is %s, want %s", method, got, want)
		}
	}
}

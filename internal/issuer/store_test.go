package issuer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// scripted stands in for the network. It notes when it was asked.
type scripted struct {
	mu     sync.Mutex
	begin  time.Time
	keys   []string
	err    error
	asked  []time.Duration // since the begin
	served []string
}

func (s *scripted) fetch(_ context.Context, source Source) (Keys, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.served = append(s.asked, time.Since(s.begin)), append(s.served, source.URL)
	if s.err != nil {
		return Keys{}, s.err
	}
	keys := Keys{Issuer: source.URL}
	for _, key := range s.keys {
		keys.Keys = append(keys.Keys, json.RawMessage(key))
	}
	return keys, nil
}

func (s *scripted) set(err error, keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.keys = err, keys
}

// times are those since the last call.
func (s *scripted) times() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	times := s.asked
	s.asked = nil
	return times
}

// bench is a Store in a bubble, which runs until the test ends.
type bench struct {
	*Store
	*scripted

	mu       sync.Mutex
	notified []string
}

func newBench(t *testing.T, options Options) *bench {
	t.Helper()
	b := &bench{scripted: &scripted{begin: time.Now(), keys: []string{"one"}}}
	options.Notify = func(server types.NamespacedName) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.notified = append(b.notified, server.Name)
	}
	b.Store = New(options)
	b.Store.fetch = b.scripted.fetch
	return b
}

func (b *bench) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// notices are the servers that were notified since the last call.
func (b *bench) notices() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	notices := b.notified
	b.notified = nil
	slices.Sort(notices)
	return notices
}

func server(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "team", Name: name}
}

var corp = Source{Name: "corp", URL: "https://login.example.com"}

// pass lets time pass, and then waits until everything rests.
func pass(d time.Duration) {
	time.Sleep(d) // in a bubble
	synctest.Wait()
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		for i := range 1000 {
			source := corp
			source.Name = fmt.Sprintf("name-%d", i)
			b.Follow(server(fmt.Sprintf("echo-%d", i)), []Source{source})
		}
		if _, known := b.Get(corp); known {
			t.Error("keys are known before the first fetch")
		}
		b.run(t)
		synctest.Wait()
		if got := b.times(); len(got) != 1 {
			t.Errorf("asked %d times for 1000 servers", len(got))
		}
		if got := b.notices(); len(got) != 1000 {
			t.Errorf("%d servers were notified", len(got))
		}
		keys, known := b.Get(corp)
		if diff := cmp.Diff(Keys{Issuer: corp.URL, Keys: []json.RawMessage{json.RawMessage("one")}}, keys); !known || diff != "" {
			t.Errorf("Get: %t (-want +got):\n%s", known, diff)
		}

		// Another bundle may lead to another answer.
		other := corp
		other.CABundle = "other"
		b.Follow(server("echo-0"), []Source{corp, corp, other})
		synctest.Wait()
		if got := b.times(); len(got) != 1 {
			t.Errorf("asked %d times for another bundle", len(got))
		}
		if got := b.notices(); !cmp.Equal(got, []string{"echo-0"}) {
			t.Errorf("notified %v", got)
		}
	})
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		b.run(t)
		b.Follow(server("a"), []Source{corp})
		b.Follow(server("b"), []Source{corp, {Cluster: true, URL: "ignored"}})
		pass(time.Minute)
		b.times()
		b.Follow(server("a"), nil)
		b.Follow(server("b"), []Source{{Cluster: true}})
		if _, known := b.Get(corp); known {
			t.Error("the store keeps keys that no server needs")
		}
		if _, known := b.Get(Source{Cluster: true, Name: "kubernetes"}); !known {
			t.Error("the store drops keys that a server needs")
		}
		b.Refresh(corp) // of nothing
		pass(interval)
		if got := b.times(); len(got) != 1 {
			t.Errorf("asked at %v, want once", got)
		}
		b.Follow(server("b"), nil)
		b.Follow(server("c"), nil)
		pass(time.Hour)
		if got := b.times(); len(got) != 0 || len(b.servers) != 0 || len(b.sources) != 0 {
			t.Errorf("asked at %v, with %d servers and %d sources", got, len(b.servers), len(b.sources))
		}
	})
}

// At rest the store asks an issuer every five minutes, and notifies no server.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		b.run(t)
		b.Follow(server("a"), []Source{corp})
		synctest.Wait()
		b.notices()
		before := b.times()[0]
		pass(24 * time.Hour)
		times := b.times()
		if len(times) < 288 || len(times) > 320 {
			t.Errorf("asked %d times a day", len(times))
		}
		pauses := map[time.Duration]bool{}
		for _, at := range times {
			if pause := at - before; pause < interval*9/10 || pause > interval {
				t.Errorf("a pause of %s", pause)
			}
			pauses[at-before], before = true, at
		}
		if len(pauses) < 10 {
			t.Errorf("only %d different pauses: all issuers would be asked at once", len(pauses))
		}
		if got := b.notices(); got != nil {
			t.Errorf("notified %v, and nothing has changed", got)
		}

		b.set(nil, "one", "two")
		pass(interval)
		if got := b.notices(); !cmp.Equal(got, []string{"a"}) {
			t.Errorf("notified %v of new keys", got)
		}
	})
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		b.set(statusError(500))
		b.run(t)
		b.Follow(server("a"), []Source{corp})
		pass(time.Hour)
		keys, known := b.Get(corp)
		if want := (Keys{Issuer: corp.URL, Err: "answers with status 500"}); !known || !cmp.Equal(keys, want) {
			t.Errorf("Get: %+v, %t", keys, known)
		}
		if got := b.notices(); !cmp.Equal(got, []string{"a"}) {
			t.Errorf("notified %v of one failure", got)
		}
		times := b.times()
		for i, seconds := range []int{5, 10, 20, 40, 80, 160, 300, 300, 300} {
			want := time.Duration(seconds) * time.Second
			if pause := times[i+1] - times[i]; pause > want || pause < want*9/10 {
				t.Errorf("pause %d is %s, want %s", i, pause, want)
			}
		}

		b.set(statusError(404)) // another reason is news
		pass(lastPause)
		if got := b.notices(); !cmp.Equal(got, []string{"a"}) {
			t.Errorf("notified %v of another failure", got)
		}
		b.set(nil, "one")
		pass(lastPause)
		if keys, _ := b.Get(corp); keys.Err != "" || len(keys.Keys) != 1 {
			t.Errorf("Get: %+v", keys)
		}
		b.set(statusError(500)) // the backoff starts over
		b.times()
		pass(interval + firstPause)
		if got := b.times(); len(got) < 2 || got[1]-got[0] > firstPause {
			t.Errorf("asked at %v", got)
		}
	})
}

// The last good keys stay. The store notifies servers only after a day.
func TestLastGoodKeysStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		b.run(t)
		b.Follow(server("a"), []Source{corp})
		synctest.Wait()
		b.notices()
		good, _ := b.Get(corp)
		b.set(context.DeadlineExceeded)
		pass(23 * time.Hour)
		if got, _ := b.Get(corp); !cmp.Equal(got, good) || b.notices() != nil {
			t.Errorf("Get: %+v, want %+v", got, good)
		}
		pass(2 * time.Hour)
		stale := good
		stale.Stale = true
		if got, _ := b.Get(corp); !cmp.Equal(got, stale) {
			t.Errorf("Get: %+v, want %+v", got, stale)
		}
		pass(48 * time.Hour)
		if got := b.notices(); !cmp.Equal(got, []string{"a"}) {
			t.Errorf("notified %v, want once", got)
		}
		b.set(nil, "one")
		pass(lastPause)
		if got, _ := b.Get(corp); !cmp.Equal(got, good) || !cmp.Equal(b.notices(), []string{"a"}) {
			t.Errorf("Get: %+v, want %+v", got, good)
		}
	})
}

// An issuer that withdraws its keys has answered.
func TestWithdrawnKeysGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		b.run(t)
		b.Follow(server("a"), []Source{corp})
		synctest.Wait()
		b.set(errNoKeys)
		pass(interval)
		if got, _ := b.Get(corp); !cmp.Equal(got, Keys{Issuer: corp.URL, Err: string(errNoKeys), Withdrawn: true}) {
			t.Errorf("Get: %+v", got)
		}
	})
}

// Run ends when its fetches have ended, also those that are slow to notice.
func TestRunWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		var ended atomic.Bool
		b.Store.fetch = func(ctx context.Context, _ Source) (Keys, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // in a bubble
			ended.Store(true)
			return Keys{}, ctx.Err()
		}
		b.Follow(server("a"), []Source{corp})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.Run(ctx); err != nil || !ended.Load() {
			t.Errorf("Run: %v, with the fetch ended: %t", err, ended.Load())
		}
		if got := b.notices(); got != nil {
			t.Errorf("notified %v of a fetch that the end has interrupted", got)
		}
	})
}

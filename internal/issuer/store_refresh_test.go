package issuer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slipway-mcp/slipway/internal/promise"
)

func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		b.run(t)
		b.Refresh(corp) // before any server follows it
		b.Follow(server("a"), []Source{corp})
		b.Refresh(corp) // before it was asked
		synctest.Wait()
		for range 100 {
			b.Refresh(corp)
		}
		pass(refreshPause - time.Nanosecond)
		if got := b.times(); len(got) > 2 {
			t.Errorf("asked at %v, want no more than two", got)
		}
		pass(time.Minute)
		b.times()

		b.Refresh(corp)
		b.Refresh(corp)
		synctest.Wait()
		if got := b.times(); len(got) != 1 {
			t.Errorf("asked at %v, want at once", got)
		}
		for range 600 { // a client sends bad tokens for ten minutes
			pass(time.Second)
			b.Refresh(corp)
		}
		times := b.times()
		for i := range times[1:] {
			if pause := times[i+1] - times[i]; pause < refreshPause {
				t.Errorf("a pause of %s", pause)
			}
		}
		if len(times) < 15 || len(times) > 20 {
			t.Errorf("asked %d times in ten minutes", len(times))
		}

		b.set(errors.New("surprise")) // a refresh makes no failure wait longer than without
		pass(refreshPause + time.Second)
		b.times()
		pass(firstPause * 2)
		b.Refresh(corp)
		if got := b.times(); len(got) == 0 {
			t.Error("there was no retry")
		}
	})
}

// A key that an issuer uses before it was fetched need not wait, also right after a fetch. Only the next
// unknown one waits, because any client can send tokens with unknown keys.
func TestNewKeyIsFetchedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		b.run(t)
		b.Follow(server("a"), []Source{corp})
		synctest.Wait()
		for _, since := range []time.Duration{time.Millisecond, time.Second, refreshPause - time.Millisecond, interval * 3 / 4} {
			pass(refreshPause)
			b.times()
			for len(b.times()) == 0 { // until it is asked as always
				pass(100 * time.Millisecond)
			}
			pass(since)
			b.notices()
			b.set(nil, "new after "+since.String())
			b.Refresh(corp)
			synctest.Wait()
			if keys, _ := b.Get(corp); string(keys.Keys[0]) != b.keys[0] || !cmp.Equal(b.notices(), []string{"a"}) {
				t.Errorf("%s after a fetch: the key is %s", since, keys.Keys[0])
			}

			b.set(nil, "newer after "+since.String())
			b.Refresh(corp)
			pass(refreshPause - time.Millisecond)
			if keys, _ := b.Get(corp); string(keys.Keys[0]) == b.keys[0] {
				t.Errorf("%s after a fetch: asked again within %s", since, refreshPause)
			}
			pass(time.Millisecond)
			if keys, _ := b.Get(corp); string(keys.Keys[0]) != b.keys[0] {
				t.Errorf("%s after a fetch: not asked again after %s", since, refreshPause)
			}
		}
	})
}

// A key that an issuer withdraws lives no longer than until the next fetch, whatever the issuer says of caching.
func TestWithdrawnKeyGoesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		b.run(t)
		b.Follow(server("a"), []Source{corp})
		synctest.Wait()
		for i := range 20 { // each pause is another
			kept := fmt.Sprintf("kept-%d", i)
			b.set(nil, kept, "withdrawn")
			pass(promise.WithdrawnKey)
			if keys, _ := b.Get(corp); len(keys.Keys) != 2 {
				t.Fatalf("%d keys, and two are published", len(keys.Keys))
			}
			b.times()
			for len(b.times()) == 0 { // at worst, it was just fetched
				pass(time.Second)
			}
			b.set(nil, kept)
			b.notices()
			pass(promise.WithdrawnKey)
			if keys, _ := b.Get(corp); len(keys.Keys) != 1 || !cmp.Equal(b.notices(), []string{"a"}) {
				t.Errorf("%d keys, and one was withdrawn %s ago", len(keys.Keys), promise.WithdrawnKey)
			}
		}
	})
}

// A manager that has started while an issuer is away has no keys of it, and others may have them from before.
func TestStaleWithoutKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		b.set(statusError(500))
		b.run(t)
		b.Follow(server("a"), []Source{corp})
		pass(staleAfter - time.Second)
		if got, _ := b.Get(corp); got.Stale {
			t.Error("stale too soon")
		}
		b.notices()
		pass(lastPause + time.Second)
		if got, _ := b.Get(corp); !cmp.Equal(got, Keys{Issuer: corp.URL, Err: "answers with status 500", Stale: true}) || !cmp.Equal(b.notices(), []string{"a"}) {
			t.Errorf("after a day: %+v", got)
		}
		b.set(errNoKeys) // which is an answer
		pass(lastPause)
		if got, _ := b.Get(corp); got.Stale || !got.Withdrawn {
			t.Errorf("without keys: %+v", got)
		}
	})
}

// Issuers that do not answer hold up each other only.
func TestSilentIssuersShareTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		var now, most atomic.Int32
		b.Store.fetch = func(ctx context.Context, source Source) (Keys, error) {
			if source.URL == corp.URL {
				return b.scripted.fetch(ctx, source)
			}
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			limited, cancel := context.WithTimeout(ctx, fetchTimeout)
			defer cancel()
			<-limited.Done()
			return Keys{}, limited.Err()
		}
		b.run(t)
		for i := range 1000 {
			b.Follow(server(fmt.Sprintf("silent-%d", i)), []Source{{URL: fmt.Sprintf("https://silent-%d", i)}})
		}
		pass(time.Hour)
		if got := most.Swap(0); got > fetches+slowFetches {
			t.Errorf("%d fetches at a time", got)
		}
		b.Follow(server("good"), []Source{corp})
		synctest.Wait()
		if _, known := b.Get(corp); !known {
			t.Error("the good issuer waits for silent ones")
		}
		pass(time.Minute)
		if got := most.Load(); got > slowFetches {
			t.Errorf("%d fetches of silent issuers at a time", got)
		}
	})
}

func TestAllowedIssuers(t *testing.T) {
	options := &Options{Allowed: []string{"https://login.example.com", "https://sso.example.com/realms/*"}}
	tests := map[string]string{
		"https://login.example.com":                   "",
		"https://login.example.com/":                  errNotAllowed,
		"https://login.example.com.evil":              errNotAllowed,
		"https://login.example.com/x":                 errNotAllowed,
		"https://sso.example.com/realms/main":         "",
		"https://sso.example.com/realms/a/b":          "",
		"https://sso.example.com/realms":              errNotAllowed,
		"https://sso.example.com/realmsx":             errNotAllowed,
		"https://sso.example.com/realms/../admin":     string(errURL),
		"https://sso.example.com/realms/%2e%2e/admin": string(errURL),
		"https://sso.example.com/realms//x":           string(errURL),
		"http://sso.example.com/realms/main":          string(errURL),
		"https://sso.example.com@evil/realms/main":    string(errURL),
	}
	for issuer, want := range tests {
		if got := options.forbids(Source{URL: issuer}); got != want {
			t.Errorf("%s: %q, want %q", issuer, got, want)
		}
	}
	if got := options.forbids(Source{Cluster: true}); got != "" {
		t.Errorf("the cluster: %q", got)
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, *options)
		b.run(t)
		evil := Source{Name: "evil", URL: "https://evil"}
		b.Follow(server("a"), []Source{evil, corp})
		synctest.Wait()
		keys, known := b.Get(evil)
		if want := (Keys{Issuer: evil.URL, Err: errNotAllowed, Forbidden: true}); !known || !cmp.Equal(keys, want) {
			t.Errorf("Get: %+v, %t", keys, known)
		}
		if !cmp.Equal(b.served, []string{corp.URL}) {
			t.Errorf("asked %v", b.served)
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		b := newBench(t, Options{Registry: registry})
		b.run(t)
		b.Follow(server("a"), []Source{corp})
		synctest.Wait()
		b.set(errors.New("surprise"))
		pass(interval)
		b.set(errors.New("surprise"))
		age := b.oldest(time.Now())
		b.mu.Lock()
		failures := len(b.asked) - 1
		b.mu.Unlock()
		want := fmt.Sprintf(`
# HELP slipway_issuer_fetches_total Attempts to fetch the public keys of token issuers, by result.
# TYPE slipway_issuer_fetches_total counter
slipway_issuer_fetches_total{result="failure"} %d
slipway_issuer_fetches_total{result="success"} 1
# HELP slipway_issuer_keys_age_seconds Age of the oldest issuer keys in use. A value over 600 means that an issuer does not answer.
# TYPE slipway_issuer_keys_age_seconds gauge
slipway_issuer_keys_age_seconds %v
`, failures, age.Seconds())
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
		if age != interval {
			t.Errorf("the keys are %s old, want %s", age, interval)
		}
	})
}

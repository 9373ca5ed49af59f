package peer

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
)

// A client that gets 503 goes on to another pod, and comes back after a while. It learns that its session is over as soon as
// one that stays.
func TestSilenceBetweenRequests(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pause  time.Duration
		heals  bool
		listed bool // until the client comes back
		want   int
	}{
		"a client that is elsewhere for a while":    {20 * time.Second, false, false, http.StatusNotFound},
		"the list has the pod for some of the time": {20 * time.Second, false, true, http.StatusNotFound},
		"the pod is there in between":               {20 * time.Second, true, false, http.StatusServiceUnavailable},
		"no client asks for too long":               {2 * watchFor, false, false, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var there, listed atomic.Bool
				listed.Store(test.listed)
				l := newLonely(t, Options{Standing: func([16]byte) roster.Standing {
					if listed.Load() {
						return roster.Listed
					}
					return roster.Unknown
				}})
				l.fail = func() (dial, handshake error) {
					if there.Load() {
						return syscall.ECONNREFUSED, nil
					}
					return syscall.EHOSTUNREACH, nil
				}
				if w := l.post(t, pingMessage); w.Code != http.StatusServiceUnavailable {
					t.Errorf("at first: %d", w.Code)
				}
				time.Sleep(test.pause / 2)
				there.Store(test.heals)
				time.Sleep(2 * watchInterval)
				there.Store(false)
				time.Sleep(test.pause / 2)
				listed.Store(false)
				if w := l.post(t, pingMessage); w.Code != test.want {
					t.Errorf("after %s: %d", test.pause, w.Code)
				}
			})
		})
	}
}

// Only so many pods are watched at a time, each once.
func TestWatchesAreBounded(t *testing.T) {
	var w watches
	until := time.Now().Add(watchFor)
	for i := range 2 * mostWatched {
		owner := modelOwner(0)
		owner.UID[1] = byte(i)
		if got := w.begin(owner, until); got != (i < mostWatched) {
			t.Errorf("watch %d begins: %v", i, got)
		}
		if w.begin(owner, until) {
			t.Errorf("watch %d begins twice", i)
		}
	}
	if w.goesOn(modelOwner(0), until) || len(w.until) >= mostWatched {
		t.Error("a watch does not end")
	}
}

// A drain that cuts an attempt short says nothing of the other pod, so requests of groups still go there.
func TestDrainEndsAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := relay.New(relay.Options{Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		defer r.Close()
		router := New(Options{Relay: r, Standing: roster.New().Standing})
		go router.Drain()
		if got := router.try(there, false); got != untried || router.notes.isSilent(there.UID, time.Now()) {
			t.Errorf("the contact is %v, and the pod counts as silent: %t", got, router.notes.isSilent(there.UID, time.Now()))
		}
	})
}

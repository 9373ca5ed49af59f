package peer

import (
	"context"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// Pods that cannot be reached cost a newcomer one attempt each, and those that follow none. It still waits for a slot here,
// and not longer than without other pods, however long the attempts take.
func TestNoPodCanBeReached(t *testing.T) {
	for name, dial := range map[string]func(context.Context, netip.AddrPort) (net.Conn, error){
		"no way": func(context.Context, netip.AddrPort) (net.Conn, error) { return nil, syscall.EHOSTUNREACH },
		"silent": func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testNoPodCanBeReached(t, dial)
		})
	}
}

func testNoPodCanBeReached(t *testing.T, dial func(context.Context, netip.AddrPort) (net.Conn, error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const others = mostPeers
		r := relay.New(relay.Options{Dial: dial})
		defer r.Close()
		list := roster.New()
		pods := []adapterapi.PeerPod{{UID: hex.EncodeToString(make([]byte, 16))}}
		for i := range others {
			pods = append(pods, adapterapi.PeerPod{UID: hex.EncodeToString([]byte{15: byte(i + 1)}), Address: "192.0.2.1:16272", Ready: true, Limit: 1})
		}
		text, err := adapterapi.Peers{Version: adapterapi.PeersVersion, Generation: 1, Pods: pods}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := list.Take([]byte(text.Text)); err != nil {
			t.Fatal(err)
		}
		registry := session.NewRegistry(session.Policy{Max: 1, Patience: places.Patience})
		taken, err := registry.Reserve(t.Context(), &caller.Caller{})
		if err != nil {
			t.Fatal(err)
		}
		router := New(Options{Self: sessionid.Owner{}, Relay: r, Standing: list.Standing})
		defer router.Drain()
		placer := NewPlacer(PlacerOptions{Router: router, List: list, Leaving: make(chan struct{}), Patience: places.Patience, Starts: func() Starts { return Starts{} }, Works: func() bool { return true }})
		door := edge.New(edge.Options{
			Admit: admitAll{}, Budget: edge.NewMemory(edge.BodyLimits{BodyBytes: 1 << 20}, budget.New(1<<20, 1)), Place: placer,
			Routes: map[string]edge.Route{"/mcp": {Serve: func(w http.ResponseWriter, r *edge.Request) {
				slot, err := r.Place(w, registry)
				if err != nil {
					if !errors.Is(err, places.ErrFull) {
						t.Error(err)
					}
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				slot.Release()
			}}},
		})
		ask := func() (status int) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(initializeMessage))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			door.ServeHTTP(w, r)
			return w.Code
		}
		for range 2 { // the patience of one may be over before it has tried all
			began := time.Now()
			if status := ask(); status != http.StatusServiceUnavailable || time.Since(began) != places.Patience {
				t.Errorf("got %d after %s", status, time.Since(began))
			}
		}
		if got := r.Forwards(relay.Unreachable); got != others || len(placer.others()) > 0 {
			t.Errorf("%d attempts, want %d; %d others may be tried again", got, others, len(placer.others()))
		}
		began := time.Now()
		time.AfterFunc(time.Second, taken.Release)
		if status := ask(); status != http.StatusOK || time.Since(began) != time.Second {
			t.Errorf("got %d after %s", status, time.Since(began))
		}
		if got := r.Forwards(relay.Unreachable) - others; got != 0 {
			t.Errorf("%d attempts, although the others are known to be silent", got)
		}
		if here, refused := placer.Placed(Here), placer.Placed(Refused); here != 1 || refused != 2 || registry.Places.Waiting() != 0 || registry.Places.Taken() != 0 {
			t.Errorf("%d placed here, %d refused, %d wait, %d taken", here, refused, registry.Places.Waiting(), registry.Places.Taken())
		}
	})
}

// A start counts as slow only if a session has to wait for it.
func TestSlowStarts(t *testing.T) {
	for name, test := range map[string]struct {
		starts Starts
		slow   bool
	}{
		"slow":             {Starts{0, slowStart + 1}, true},
		"just fast enough": {Starts{0, slowStart}, false},
		"not known":        {Starts{}, false},
		"there is a spare": {Starts{1, time.Hour}, false},
		"there are two":    {Starts{2, slowStart + 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPlacer(PlacerOptions{
				Router: New(Options{}), List: roster.New(), Leaving: make(chan struct{}), Starts: func() Starts { return test.starts }, Works: func() bool { return true },
			})
			if got := p.standing(); got.slow != test.slow || !got.newest {
				t.Errorf("got %+v, want slow: %t", got, test.slow)
			}
		})
	}
}

// A cordon lasts for as long as the manager renews it: a manager that is gone keeps no pod from its spare processes.
func TestCordonLapses(t *testing.T) {
	t.Parallel()
	now := time.Now()
	list := roster.NewAt(func() time.Time { return now })
	self := sessionid.Owner{UID: [16]byte{1}}
	text, err := adapterapi.Peers{Version: adapterapi.PeersVersion, Generation: 1, Pods: []adapterapi.PeerPod{
		{UID: hex.EncodeToString(self.UID[:]), Address: "192.0.2.1:16272", Ready: true, Cordoned: true},
	}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := list.Take([]byte(text.Text)); err != nil {
		t.Fatal(err)
	}
	placer := NewPlacer(PlacerOptions{Router: New(Options{Self: self, Standing: list.Standing}), List: list})
	for _, step := range []struct {
		after    time.Duration
		cordoned bool
	}{{0, true}, {30 * time.Second, true}, {time.Nanosecond, false}} {
		now = now.Add(step.after)
		if got := placer.Cordoned(); got != step.cordoned {
			t.Errorf("%s later: cordoned is %t", step.after, got)
		}
	}
}

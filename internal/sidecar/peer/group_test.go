package peer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/trust"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// ranked is an adapter with a list of pods, to which every connection fails in a way of its own.
type ranked struct {
	door  *edge.Door
	pods  []roster.Candidate // all, as ranked
	state *sessionid.Owner   // that gave the client its state
	asked int                // for the name of the group

	mu    sync.Mutex // for what changes while requests are in flight
	ready *roster.Ready
	next  chan struct{} // closes when another list comes
	dials []string      // of pods
	fails map[string][2]error
}

// The group ranks these pods in this order. The adapter is one of them.
const (
	rankedGroup = "------address 10.0.0.1"
	rankedPods  = 4
)

func newRanked(t *testing.T, self int) *ranked {
	t.Helper()
	k := &ranked{next: make(chan struct{}), fails: map[string][2]error{}}
	list := readyPods(rankedPods)
	order, group := homesOf(list), digestOf(rankedGroup)
	slices.SortFunc(order, func(a, b home) int {
		if a.isBefore(&b, group) {
			return -1
		}
		return 1
	})
	k.ready = &roster.Ready{}
	for i, h := range order {
		h.owner.Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 16272)
		k.ready.Pods = append(k.ready.Pods, roster.Candidate{PeerPod: list[0].PeerPod, Owner: h.owner})
	}
	k.pods = k.ready.Pods
	passes := relay.New(relay.Options{
		Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			pod := to.Addr().String()
			k.mu.Lock()
			k.dials = append(k.dials, strings.TrimPrefix(pod, "192.0.2."))
			k.mu.Unlock()
			if err := k.failure(pod)[0]; errors.Is(err, errMute) {
				<-ctx.Done()
				return nil, ctx.Err()
			} else if err != nil {
				return nil, err
			}
			near, far := net.Pipe()
			return near, far.Close()
		},
		Handshake: func(ctx context.Context, c net.Conn, uid [16]byte) (*tls.Conn, error) {
			for _, pod := range k.pods {
				if pod.Owner.UID == uid && errors.Is(k.failure(pod.Owner.Address.Addr().String())[1], errMute) {
					<-ctx.Done()
					return nil, errors.Join(ctx.Err(), c.Close())
				}
				if pod.Owner.UID == uid && errors.Is(k.failure(pod.Owner.Address.Addr().String())[1], errNone) {
					return tls.Client(c, nil), nil
				}
				if pod.Owner.UID == uid {
					return nil, cmp.Or(k.failure(pod.Owner.Address.Addr().String())[1], errors.Join(errors.New("unexpected"), c.Close()))
				}
			}
			return nil, errors.New("no such pod")
		},
	})
	t.Cleanup(passes.Close)
	router := New(Options{
		Self: k.ready.Pods[self].Owner, Relay: passes, Standing: func([16]byte) roster.Standing { return roster.Listed },
		Ready: func() *roster.Ready { k.mu.Lock(); defer k.mu.Unlock(); return k.ready },
		Next:  func() <-chan struct{} { k.mu.Lock(); defer k.mu.Unlock(); return k.next },
		State: func(*edge.Request) (sessionid.Owner, bool) {
			if k.state == nil {
				return sessionid.Owner{}, false
			}
			return *k.state, true
		},
	})
	t.Cleanup(router.Drain)
	k.door = edge.New(edge.Options{
		Admit: admitAll{}, Budget: edge.NewMemory(edge.BodyLimits{BodyBytes: 1 << 20}, budget.New(1<<20, 1)), Locate: router,
		Routes: map[string]edge.Route{"/mcp": {
			Group: func(r *edge.Request) string {
				k.asked++
				if r.Messages[0].Envelope.ProtocolVersion == nil {
					return ""
				}
				return rankedGroup
			},
			Serve: func(w http.ResponseWriter, r *edge.Request) {
				if isListen(r) {
					<-r.Context().Done()
				}
				if errors.Is(context.Cause(r.Context()), fault.ErrMoved) {
					w.WriteHeader(statusMoved)
					return
				}
				w.WriteHeader(http.StatusNotFound)
			},
		}},
	})
	return k
}

// errNone has a pod take a connection, and errMute has it say nothing until the dial gives up.
var errNone, errMute = errors.New("none"), errors.New("mute")

// statusMoved answers a subscription whose group has moved.
const statusMoved = http.StatusResetContent

// fail has connections to a pod fail, by its place in the ranking.
func (k *ranked) fail(place int, dial, handshake error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fails[k.pods[place].Owner.Address.Addr().String()] = [2]error{dial, handshake}
}

func (k *ranked) failure(pod string) [2]error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fails[pod]
}

func (k *ranked) post(t *testing.T, body string) *httptest.ResponseRecorder {
	t.Helper()
	k.mu.Lock()
	k.dials = nil
	k.mu.Unlock()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	k.door.ServeHTTP(w, r)
	return w
}

const groupCall = `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`

// A request goes to the first home of its group, and to the next one if no connection to that can be had: the pod is gone, or
// cannot be reached. A pod that is there and does not take the request gets patience, and then 503 is the answer: no other
// pod begins with a second state.
func TestHomesOfAGroup(t *testing.T) {
	refuses, silent, closes, none := syscall.ECONNREFUSED, syscall.EHOSTUNREACH, errors.New("closed"), syscall.EMFILE
	const here, unavailable = http.StatusNotFound, http.StatusServiceUnavailable
	for name, test := range map[string]struct {
		self     int
		fail     func(*ranked)
		body     string // groupCall if it is empty
		status   int
		dials    string // in this order, each pod once or many times in a row
		attempts int    // at least
		after    time.Duration
	}{
		"this pod is first":        {self: 0, status: here},
		"the first is gone":        {self: 1, fail: func(k *ranked) { k.fail(0, refuses, nil) }, status: here, dials: "0"},
		"the first is another one": {self: 1, fail: func(k *ranked) { k.fail(0, nil, trust.ErrStranger) }, status: here, dials: "0"},
		"the first is silent":      {self: 1, fail: func(k *ranked) { k.fail(0, silent, nil) }, status: here, dials: "0"},
		"all others before are gone": {self: 3, fail: func(k *ranked) {
			k.fail(0, refuses, nil)
			k.fail(1, silent, nil)
			k.fail(2, nil, trust.ErrStranger)
		}, status: here, dials: "0 1 2"},
		"all are gone, and this pod is none": {self: 3, fail: func(k *ranked) {
			k.ready = &roster.Ready{Pods: k.ready.Pods[:3]}
			for i := range 3 {
				k.fail(i, refuses, nil)
			}
		}, status: here, dials: "0 1 2"},
		"the second takes no connection": {self: 2, fail: func(k *ranked) {
			k.fail(0, refuses, nil)
			k.fail(1, nil, closes)
		}, status: unavailable, dials: "0 1", attempts: int(patience/between) + 2, after: patience},
		"no descriptors here":     {self: 1, fail: func(k *ranked) { k.fail(0, none, nil) }, status: unavailable, dials: "0"},
		"a state of this pod":     {self: 3, fail: func(k *ranked) { k.state = &k.ready.Pods[3].Owner }, status: here},
		"no list":                 {self: 3, fail: func(k *ranked) { k.ready = nil }, status: here},
		"a list without homes":    {self: 3, fail: func(k *ranked) { k.ready = &roster.Ready{} }, status: here},
		"only this pod is a home": {self: 3, fail: func(k *ranked) { k.ready = &roster.Ready{Pods: k.ready.Pods[3:]} }, status: here},
		"cordoned first one": {self: 1, fail: func(k *ranked) {
			k.ready.Pods[0].PeerPod = adapterapi.PeerPod{Ready: true, Verified: true, Newest: true, Cordoned: true}
		}, status: here},
		"no request of a group": {self: 3, body: pingMessage, status: here},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k, begin := newRanked(t, test.self), time.Now()
				if test.fail != nil {
					test.fail(k)
				}
				body := groupCall
				if test.body != "" {
					body = test.body
				}
				w := k.post(t, body)
				order := strings.Join(slices.Compact(slices.Clone(k.dials)), " ")
				// The relay also pings a pod that did not answer, at moments at which the request tries again, too.
				if w.Code != test.status || order != test.dials || len(k.dials) < test.attempts || time.Since(begin) != test.after {
					t.Errorf("%d after %s, and attempts to connect to %q: %s", w.Code, time.Since(begin), k.dials, w.Body)
				}
				if w.Code == unavailable && (!strings.Contains(w.Body.String(), `"id":"a"`) || w.Header().Get("Retry-After") == "") {
					t.Errorf("the answer is %v %s", w.Header(), w.Body)
				}
				if other := strings.HasPrefix(name, "no list") || strings.HasPrefix(name, "a list") || strings.HasPrefix(name, "only"); other && k.asked > 0 {
					t.Error("the name of the group is worked out for nothing")
				}
			})
		})
	}
}

// A pod that is silent costs one request a dial. Later ones do not wait for it, until it answers again.
func TestSilentHomes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newRanked(t, 1)
		k.fail(0, errMute, nil)
		begin := time.Now()
		waits := relay.DefaultDialTimeout
		for time.Since(begin) < watchFor {
			sent := time.Now()
			if w := k.post(t, groupCall); w.Code != http.StatusNotFound || time.Since(sent) != waits {
				t.Fatalf("%s later: %d after %s: %s", sent.Sub(begin), w.Code, time.Since(sent), w.Body)
			}
			waits = 0
			time.Sleep(failedLapse / 11) // so that the client and the watch never try at the same time
		}
		k.fail(0, nil, errors.New("closed")) // its address is there again
		time.Sleep(watchInterval + relay.DefaultDialTimeout)
		if w := k.post(t, groupCall); w.Code != http.StatusServiceUnavailable {
			t.Errorf("it takes no connection, and the answer is %d", w.Code)
		}
	})
}

// All homes of a group have one patience together. A home that is there gets what others have left of it, and no other pod
// begins with a second state.
func TestPatienceWithHomes(t *testing.T) {
	const here, unavailable = http.StatusNotFound, http.StatusServiceUnavailable
	for name, test := range map[string]struct {
		fail   func(*ranked)
		listen bool
		status int
		dials  string
		after  time.Duration
	}{
		"two are silent, and the third closes connections": {func(k *ranked) {
			k.fail(0, errMute, nil)
			k.fail(1, errMute, nil)
			k.fail(2, nil, errors.New("closed"))
		}, false, unavailable, "0 1 2", patience},
		"one is silent, and the second says nothing": {func(k *ranked) {
			k.fail(0, errMute, nil)
			k.fail(1, nil, errMute)
		}, false, unavailable, "0 1", patience},
		"the same, for a subscription": {func(k *ranked) {
			k.fail(0, errMute, nil)
			k.fail(1, nil, errMute)
		}, true, unavailable, "0 1", patience},
		"all are silent": {func(k *ranked) {
			for i := range 3 {
				k.fail(i, errMute, nil)
			}
		}, false, here, "0 1 2", 3 * relay.DefaultDialTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k, begin := newRanked(t, 3), time.Now()
				test.fail(k)
				body := groupCall
				if test.listen {
					body = groupListen
				}
				w := k.post(t, body)
				k.mu.Lock()
				defer k.mu.Unlock()
				places := slices.Clone(k.dials) // those of watches, too
				slices.Sort(places)
				if dials := strings.Join(slices.Compact(places), " "); w.Code != test.status || dials != test.dials || time.Since(begin).Round(time.Millisecond) != test.after {
					t.Errorf("%d after %s, and attempts to connect to %q: %s", w.Code, time.Since(begin), dials, w.Body)
				}
			})
		})
	}
}

// At the home itself, a request costs next to nothing, and no memory.
func TestHitsAllocateNothing(t *testing.T) {
	hit := hitOf(t, 5)
	if allocations := testing.AllocsPerRun(100, hit); allocations != 0 {
		t.Errorf("a hit allocates %v objects", allocations)
	}
}

func BenchmarkHit(b *testing.B) {
	for _, pods := range []int{2, 5, 100} {
		b.Run(fmt.Sprintf("%d pods", pods), func(b *testing.B) {
			hit := hitOf(b, pods)
			b.ReportAllocs()
			for b.Loop() {
				hit()
			}
		})
	}
}

// hitOf returns a function that asks the first home of a group, one of so many pods, where a request belongs.
func hitOf(t testing.TB, pods int) func() {
	t.Helper()
	list := roster.New()
	var all []adapterapi.PeerPod
	for _, pod := range readyPods(pods) {
		pod.UID, pod.Address = fmt.Sprintf("%x", pod.Owner.UID), "192.0.2.1:16272"
		all = append(all, pod.PeerPod)
	}
	text, err := adapterapi.Peers{Version: adapterapi.PeersVersion, Generation: 1, Pods: all}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := list.Take([]byte(text.Text)); err != nil {
		t.Fatal(err)
	}
	homes := homesOf(list.Ready().Pods)
	router := New(Options{Self: homes.next(digestOf(rankedGroup), nil).owner, Ready: list.Ready})
	name := strings.Clone(rankedGroup)
	of := func(*edge.Request) string { return name }
	request := &edge.Request{Messages: []session.Message{{Envelope: rpc.Envelope{Kind: rpc.Request, Method: []byte("tools/call")}}}}
	return func() {
		if !router.ByGroup(nil, request, of) {
			t.Fatal("the request goes elsewhere")
		}
	}
}

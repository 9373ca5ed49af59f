package relay

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

func TestRequestsInFlight(t *testing.T) {
	release := make(chan struct{})
	o := startOwner(t, func(http.ResponseWriter, *http.Request) { <-release })
	r := New(Options{Handshake: handshake, Limits: patient(Limits{Requests: 3, Streams: 1, Idle: 2})})
	t.Cleanup(r.Close)
	get := &Request{Method: "GET", Target: "/", Host: "x"}
	var all sync.WaitGroup
	begin := func(request *Request) {
		all.Go(func() {
			if _, err := direct(t.Context(), r, o.Owner, request); err != nil {
				t.Error(err)
			}
		})
	}
	begin(get)
	eventually(t, "stream begins", func() bool { return r.Streams() == 1 })
	_, err := direct(t.Context(), r, o.Owner, get)
	wantDialError(t, err, Busy)
	begin(post())
	begin(post())
	eventually(t, "calls begin", func() bool { return r.InFlight() == 3 })
	_, err = direct(t.Context(), r, o.Owner, post())
	wantDialError(t, err, Busy)
	eventually(t, "all have connections", func() bool { return r.Connections() == 3 })
	close(release)
	all.Wait()
	if _, err := direct(t.Context(), r, o.Owner, get); err != nil {
		t.Error(err)
	}
	if n := r.Connections(); n != 2 {
		t.Errorf("%d connections are idle, want 2", n)
	}
	if n := r.Forwards(Busy); n != 2 {
		t.Errorf("%d requests counted as busy, want 2", n)
	}
}

// TestShareOfPlaces: one client leaves places to others.
func TestShareOfPlaces(t *testing.T) {
	r := New(Options{Handshake: handshake, Limits: patient(Limits{Requests: 32, Streams: 16})})
	t.Cleanup(r.Close)
	enter := func(stream bool, client string) (got int) {
		for got < 100 && enters(t, r, sessionid.Owner{}, stream, client) != nil {
			got++
		}
		return got
	}
	for i, step := range []struct {
		client string
		stream bool
		want   int
	}{
		{"hog", true, 12}, {"second", true, 2}, {"hog", true, 0}, {"third", true, 2}, {"fourth", true, 0}, // of 16 streams
		{"hog", false, 8}, {"second", false, 2}, {"fourth", false, 4}, {"fifth", false, 2}, {"sixth", false, 0}, // of 32 requests
	} {
		if got := enter(step.stream, step.client); got != step.want {
			t.Errorf("step %d: %s gets %d places, want %d", i, step.client, got, step.want)
		}
	}
	p := r.pods[sessionid.Owner{}]
	for client, held := range map[string]places{"hog": {20, 12}, "second": {4, 2}, "third": {2, 2}, "fourth": {4, 0}, "fifth": {2, 0}} {
		for i := range held.requests {
			r.leave(p, i < held.streams, client)
		}
	}
	if len(p.held) != 0 || p.inFlight != 0 || p.streams != 0 {
		t.Errorf("%d clients with %d requests are left", len(p.held), p.inFlight)
	}
}

// enters has a request enter, and returns nil if a limit is reached.
func enters(t *testing.T, r *Relay, to sessionid.Owner, stream bool, client string) *pod {
	t.Helper()
	p, err := r.enter(t.Context(), to, &Request{Client: client}, stream)
	if err != nil {
		wantDialError(t, err, Busy)
	}
	return p
}

// Streams that wait for a place get one in the order in which they came, except that a client with many leaves the last
// ones to others. A request whose client goes meanwhile takes none.
func TestQueueForPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Limits: Limits{Streams: 8}})
		defer r.Close()
		var p *pod
		for range 6 {
			p = enters(t, r, sessionid.Owner{}, true, "hog")
		}
		enters(t, r, sessionid.Owner{}, true, "second")
		enters(t, r, sessionid.Owner{}, true, "third")
		var got []string
		begun, over := 0, 0
		enter := func(ctx context.Context, client, name string) {
			go func() {
				_, err := r.enter(ctx, sessionid.Owner{}, &Request{Client: client, Queue: func() func() {
					begun++
					return func() { over++ }
				}}, true)
				if err != nil {
					name += " " + outcomeOf(err).String()
				}
				got = append(got, name)
			}()
			synctest.Wait()
		}
		gone, leaves := context.WithCancel(t.Context())
		enter(t.Context(), "hog", "hog 1")
		enter(gone, "fourth", "fourth")
		enter(t.Context(), "fifth", "fifth")
		enter(t.Context(), "hog", "hog 2")
		for i, step := range []struct {
			happens func()
			want    []string // so far
			waiting int
		}{
			{func() {}, nil, 4},
			{leaves, []string{"fourth client"}, 3},
			{func() { r.leave(p, true, "third") }, []string{"fourth client", "fifth"}, 2},
			{func() { r.leave(p, true, "second") }, []string{"fourth client", "fifth"}, 2},
			{func() { r.leave(p, true, "hog") }, []string{"fourth client", "fifth"}, 2},
			{func() { r.leave(p, true, "hog") }, []string{"fourth client", "fifth", "hog 1"}, 1},
			{func() { r.leave(p, true, "hog") }, []string{"fourth client", "fifth", "hog 1", "hog 2"}, 0},
		} {
			step.happens()
			synctest.Wait()
			if diff := cmp.Diff(step.want, got); diff != "" || r.Waiting() != step.waiting {
				t.Fatalf("step %d: %d wait; (-want +got):\n%s", i, r.Waiting(), diff)
			}
		}
		if begun != 4 || over != 4 {
			t.Errorf("%d waits began, and %d are over", begun, over)
		}
		if r.Streams() != 6 { // five of the hog, and the fifth client's
			t.Errorf("%d streams", r.Streams())
		}
	})
}

func TestPods(t *testing.T) {
	release := make(chan struct{})
	handler := func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			<-release
		}
	}
	r := New(Options{Handshake: handshake, Limits: patient(Limits{Pods: 2})})
	t.Cleanup(r.Close)
	var owners []sessionid.Owner
	for range 4 {
		owners = append(owners, startOwner(t, handler).Owner)
	}
	for _, to := range owners[:3] {
		if _, err := direct(t.Context(), r, to, post()); err != nil {
			t.Fatal(err)
		}
	}
	known := func() (all [4]bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for i, to := range owners {
			all[i] = r.pods[to] != nil
		}
		return all
	}
	if got := known(); got != [4]bool{false, true, true, false} {
		t.Errorf("known pods are %v", got)
	}
	if n := r.Connections(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
	var all sync.WaitGroup
	for _, to := range owners[1:3] {
		all.Go(func() {
			request := post()
			request.Target = "/wait"
			_, _ = direct(t.Context(), r, to, request)
		})
	}
	eventually(t, "requests are in flight", func() bool { return r.InFlight() == 2 })
	_, err := direct(t.Context(), r, owners[3], post())
	wantDialError(t, err, Busy)
	close(release)
	all.Wait()
}

// TestManyAtOnce: requests that come together get connections one after the other, and all are answered.
func TestManyAtOnce(t *testing.T) {
	o, e := pair(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for range 20 {
				request := post()
				request.Body = bytes.Repeat([]byte{byte(i)}, 100*i)
				w, err := direct(t.Context(), e.relay, o.Owner, request)
				if err != nil || !bytes.Equal(w.Body.Bytes(), request.Body) {
					t.Errorf("answer of %d bytes, want %d: %v", w.Body.Len(), len(request.Body), err)
				}
			}
		})
	}
	all.Wait()
	if n := e.relay.InFlight(); n != 0 {
		t.Errorf("%d requests are still counted", n)
	}
}

// TestNothingIsLeftBehind: goroutines and connections end with their requests, or with Close.
func TestNothingIsLeftBehind(t *testing.T) {
	var calls atomic.Int32
	o := startOwner(t, func(w http.ResponseWriter, r *http.Request) {
		switch calls.Add(1) % 4 {
		case 0:
			hangUp(w)
		case 1:
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		case 2:
			_, _ = io.Copy(io.Discard, r.Body) // net/http notices the end of the connection only then
			<-r.Context().Done()
		}
	})
	before := runtime.NumGoroutine()
	r := New(Options{Handshake: handshake, WriteTimeout: time.Second})
	for i := range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		request := post()
		if i%3 == 0 {
			request.Rest, request.ContentLength = &endless{left: 1 << 20}, 1<<20+2
		}
		_, _ = direct(ctx, r, o.Owner, request)
		cancel()
	}
	r.Close()
	_ = o.server.Close()
	if n := r.Connections(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
	_, err := direct(t.Context(), r, o.Owner, post())
	wantDialError(t, err, Busy)
}

package backend

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionserver"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/shared"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
	"github.com/slipway-mcp/slipway/internal/version"
)

// sharedHub is the hub of a server whose sessions share a process. If the server has sessions only, that process is also
// the one of clients without sessions, and other pods hear of its changes.
type sharedHub struct {
	*sessionless.Principals
	process *shared.Process
	search  *eraSearch
}

// eraSearch finds out what the server speaks, for all watches together: each attempt takes a process.
type eraSearch struct {
	mu      sync.Mutex
	backOff mux.BackOff
}

// era returns what the server speaks, or Auto if that cannot be found out now.
func (h sharedHub) era(ctx context.Context) sessionless.Era {
	s := h.search
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := h.Found(); found != sessionless.Auto || s.backOff.Err() != nil || ctx.Err() != nil {
		return found
	}
	era, err := h.Era(ctx)
	switch {
	case err == nil:
		s.backOff.Reset()
	case ctx.Err() == nil:
		s.backOff.Failed(err, mux.Background)
	}
	return era
}

// Observe implements news.Hub.
func (h sharedHub) Observe(ctx context.Context, wants []subscription.Want, o subscription.Observer) (running []bool, stop func(), err error) {
	running, unobserve, err := h.Principals.Observe(ctx, wants, o)
	of := slices.IndexFunc(wants, func(w subscription.Want) bool { return w.Principal == "" })
	if err != nil || of < 0 || h.Found() == sessionless.Modern {
		return running, unobserve, err
	}
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &sharedWatch{hub: h, of: of, observer: o}
	defer w.observed.Store(true)
	var settled sync.WaitGroup
	for uris := range chunks(wants[of].URIs) {
		settled.Add(1)
		go w.run(watching, subscription.Filter{Lists: wants[of].Lists, URIs: uris}, sync.OnceFunc(settled.Done))
	}
	all := make(chan struct{})
	go func() {
		settled.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-ctx.Done():
	}
	running[of] = running[of] || h.Found() == sessionless.Legacy
	return running, func() {
		cancel()
		unobserve()
	}, nil
}

// chunks yields as many resources as a session may have, and once none if there are none.
func chunks(uris []string) func(yield func([]string) bool) {
	if len(uris) == 0 {
		return func(yield func([]string) bool) { yield(nil) }
	}
	return slices.Chunk(uris, shared.MaxSubscriptions)
}

// sharedWatch watches the process that sessions share, for another pod. It does so by sessions, as the keeper does.
type sharedWatch struct {
	hub      sharedHub
	of       int // the index of the Want
	observer subscription.Observer
	observed atomic.Bool // the other pod does not wait for the process any more
}

const (
	// watchTimeout is for the process to answer one request.
	watchTimeout = 10 * time.Second
	// watchRetry is between two attempts to watch the process.
	watchRetry = time.Second
)

// run watches the process, and the next one when that has ended. It calls settled when the first one is watched, or
// cannot be.
func (w *sharedWatch) run(ctx context.Context, wanted subscription.Filter, settled func()) {
	defer settled()
	for ctx.Err() == nil {
		switch w.hub.era(ctx) {
		case sessionless.Modern:
			return
		case sessionless.Legacy:
			w.watch(ctx, wanted, settled)
		case sessionless.Auto:
		}
		settled()
		mux.Pause(ctx, watchRetry)
	}
}

// watch watches one process to its end.
func (w *sharedWatch) watch(ctx context.Context, wanted subscription.Filter, settled func()) {
	opening, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	server, err := sessionserver.New(w.hub.process.Open(opening))
	if err != nil {
		return
	}
	defer server.Close()
	var conn struct {
		mux.Conn[struct{}]
		mu sync.Mutex
	}
	end := func(reason error) {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		conn.EndLocked(reason)
	}
	conn.Init(server, &conn.mu, mux.Options{Fail: end})
	conn.Serve(func(m session.Message) { w.receive(m, wanted) }, end)
	ask := func(method, params string) {
		conn.mu.Lock()
		answered := conn.AskLocked(method, params, watchTimeout)
		conn.mu.Unlock()
		_, _ = conn.Await(ctx, answered) // a resource that the process does not agree to has no updates
	}
	ask(rpc.MethodInitialize, rpc.InitializeParams(front.Revision20251125, "{}", version.Get().Version))
	for _, uri := range wanted.URIs {
		ask("resources/subscribe", `"uri":`+string(rpc.AppendString(nil, uri)))
	}
	if conn.Dead() != nil {
		return
	}
	if w.observed.Load() {
		w.observer.Missed(w.of) // this process knows nothing of what the one before did, or may have told of changes before
	}
	settled()
	select {
	case <-conn.Over():
	case <-ctx.Done():
	}
}

func (w *sharedWatch) receive(m session.Message, wanted subscription.Filter) {
	method, uri := string(m.Envelope.Method), string(m.Envelope.URI)
	if m.Envelope.Kind == rpc.Notification && wanted.Matches(method, uri) {
		w.observer.Changed(w.of, method, uri)
	}
}

package issuer

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Store keeps the keys of the issuers that servers follow. Servers with the same issuer cost one fetch.
type Store struct {
	options Options
	// fetch gets the keys of a source. Its errors have a class.
	fetch   func(context.Context, Source) (Keys, error)
	metrics *metrics

	// places are those of fetches, and slow those of issuers that took long and failed when they were last
	// asked.
	places, slow chan struct{}

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before and after it
	running sync.WaitGroup
	sources map[Source]*followed
	servers map[types.NamespacedName][]Source
}

// followed is a source that at least one server follows.
type followed struct {
	source    Source
	followers map[types.NamespacedName]bool
	refresh   chan struct{}
	stop      context.CancelFunc // nil before it runs

	known     Keys
	asked     bool
	fails     int
	isSlow    bool
	reachedAt time.Time // when keys were last fetched; before that, when the issuer was first asked
	err       string    // the class of the last fetch's failure; empty if it succeeded

	refreshedAt time.Time // the last fetch that Refresh asked for; only keep uses it
}

// New returns a Store. It fetches nothing before Run.
func New(options Options) *Store {
	if options.Notify == nil {
		options.Notify = func(types.NamespacedName) {}
	}
	fetcher := &fetcher{cluster: options.Cluster, addresses: options.Addresses, timeout: fetchTimeout}
	s := &Store{
		options: options, fetch: fetcher.fetch,
		places: make(chan struct{}, fetches), slow: make(chan struct{}, slowFetches),
		sources: map[Source]*followed{}, servers: map[types.NamespacedName][]Source{},
	}
	s.metrics = newMetrics(options.Registry, s)
	return s
}

// Run fetches keys until the context ends. Nothing of it is left when it returns.
func (s *Store) Run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	for _, f := range s.sources {
		s.startLocked(f)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.ctx = nil // From here on, nothing starts.
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// startLocked begins to fetch the keys of a source, if the Store runs.
func (s *Store) startLocked(f *followed) {
	if s.ctx == nil {
		return
	}
	ctx, stop := context.WithCancel(s.ctx)
	f.stop = stop
	s.running.Go(func() { s.keep(ctx, f) })
}

// identity is what of a source matters for what is fetched.
func identity(source Source) Source {
	source.Name = ""
	if source.Cluster {
		return Source{Cluster: true}
	}
	return source
}

// Follow replaces the sources that a server needs. Without any, the server is forgotten. Keys of a source
// that no server needs any more are forgotten, too.
func (s *Store) Follow(server types.NamespacedName, sources []Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := make([]Source, 0, len(sources))
	for _, source := range sources {
		if source = identity(source); s.options.forbids(source) == "" && !slices.Contains(wanted, source) {
			wanted = append(wanted, source)
			s.followLocked(server, source)
		}
	}
	for _, source := range s.servers[server] {
		if !slices.Contains(wanted, source) {
			s.leaveLocked(server, source)
		}
	}
	if len(wanted) == 0 {
		delete(s.servers, server)
		return
	}
	s.servers[server] = wanted
}

func (s *Store) followLocked(server types.NamespacedName, source Source) {
	f := s.sources[source]
	if f == nil {
		f = &followed{source: source, followers: map[types.NamespacedName]bool{}, refresh: make(chan struct{}, 1)}
		s.sources[source] = f
		s.startLocked(f)
	}
	f.followers[server] = true
}

func (s *Store) leaveLocked(server types.NamespacedName, source Source) {
	f := s.sources[source]
	delete(f.followers, server)
	if len(f.followers) > 0 {
		return
	}
	delete(s.sources, source)
	if f.stop != nil {
		f.stop()
	}
}

// Get returns what is known of a source that a server follows. It is false if the issuer was not asked
// yet: Notify tells when it was.
func (s *Store) Get(source Source) (Keys, bool) {
	if why := s.options.forbids(source); why != "" {
		return Keys{Issuer: source.URL, Err: why, Forbidden: true}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.sources[identity(source)]
	if f == nil || !f.asked {
		return Keys{}, false
	}
	return f.known, true
}

// Refresh fetches the keys of a followed source again soon: at once, or half a minute after the last fetch
// that it asked for, or that failed.
func (s *Store) Refresh(source Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.sources[identity(source)]; f != nil {
		select {
		case f.refresh <- struct{}{}:
		default: // a refresh is pending already
		}
	}
}

// keep fetches the keys of a source again and again.
func (s *Store) keep(ctx context.Context, f *followed) {
	for s.update(ctx, f) && s.rest(ctx, f) {
	}
}

// rest waits until it is time for the next fetch. It is false when the context has ended.
func (s *Store) rest(ctx context.Context, f *followed) bool {
	pause, failed := s.pause(f)
	next := time.Now().Add(pause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	refresh := f.refresh
	for {
		select {
		case <-refresh:
			since := f.refreshedAt
			if failed {
				since = next.Add(-pause)
			}
			if soon := since.Add(refreshPause); soon.Before(next) {
				timer.Reset(time.Until(soon))
			}
			refresh = nil
		case now := <-timer.C:
			if refresh == nil {
				f.refreshedAt = now
			}
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// pause is the time until the next fetch, and whether the last one failed.
func (s *Store) pause(f *followed) (pause time.Duration, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause = interval
	if f.fails > 0 {
		pause = min(firstPause<<min(f.fails-1, 10), lastPause)
	}
	return pause - rand.N(pause/10), f.fails > 0 //nolint:gosec // It spreads load and protects nothing.
}

// update fetches the keys of a source once. It is false when the context has ended.
func (s *Store) update(ctx context.Context, f *followed) bool {
	place := s.place(f)
	select {
	case place <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	select {
	case <-f.refresh: // this fetch is as good as the one that was asked for
	default:
	}
	begin := time.Now()
	got, err := s.fetch(ctx, f.source)
	<-place
	if ctx.Err() != nil {
		return false // a failure after cancellation says nothing about the issuer
	}
	s.metrics.fetched(err)
	now := time.Now()
	for _, server := range s.learn(f, got, err, now.Sub(begin), now) {
		s.options.Notify(server)
	}
	return true
}

func (s *Store) place(f *followed) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.isSlow {
		return s.slow
	}
	return s.places
}

// learn records the result of a fetch, and returns the servers for which something has changed.
func (s *Store) learn(f *followed, got Keys, err error, took time.Duration, now time.Time) []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.isSlow = err != nil && took >= slowAfter
	if f.reachedAt.IsZero() {
		f.reachedAt = now
	}
	if err == nil {
		f.fails, f.reachedAt = 0, now
	} else {
		got = f.afterFailure(got, classify(err), now)
	}
	s.logLocked(f, got, err)
	if f.asked && f.known.equal(got) {
		return nil
	}
	f.asked, f.known = true, got
	return slices.Collect(maps.Keys(f.followers))
}

// afterFailure is what is known after a fetch that failed: the last good keys, if there are any. An
// issuer that withdraws all of its keys has answered: then no key is good any more.
func (f *followed) afterFailure(got Keys, class string, now time.Time) Keys {
	f.fails++
	if withdrawn := class == errNoKeys.Error(); withdrawn || len(f.known.Keys) == 0 {
		got.Issuer, got.Keys, got.Err, got.Withdrawn = f.issuer(got), nil, class, withdrawn
		got.Stale = !withdrawn && now.Sub(f.reachedAt) >= staleAfter
		return got
	}
	last := f.known
	last.Stale = now.Sub(f.reachedAt) >= staleAfter
	return last
}

func (f *followed) issuer(got Keys) string {
	switch {
	case got.Issuer != "":
		return got.Issuer
	case f.source.Cluster:
		return f.known.Issuer
	default:
		return f.source.URL
	}
}

// logLocked logs changes: an issuer that is away for long has one line, however often it is asked.
func (s *Store) logLocked(f *followed, got Keys, err error) {
	name := f.source.URL
	if f.source.Cluster {
		name = "that of the cluster"
	}
	log, class := s.options.Log.WithValues("issuer", name), ""
	if err != nil {
		class = classify(err)
	}
	switch {
	case class != "" && class != f.err:
		log.Info("Cannot fetch the keys of an issuer", "reason", class, "lastKeys", len(got.Keys))
	case class == "" && f.err != "":
		log.Info("Fetched the keys of an issuer again", "keys", len(got.Keys))
	case class == "" && !f.known.equal(got):
		log.V(1).Info("The keys of an issuer have changed", "keys", len(got.Keys))
	}
	f.err = class
}

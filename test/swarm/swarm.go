package swarm

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Mix says how often clients do what, by weights.
type Mix struct {
	Calls     int // of tick
	Streams   int // progress, with the stream cut and resumed in between
	Cancelled int // calls that the client cancels
	Questions int // calls that ask the client something
}

// Options configure a swarm.
type Options struct {
	URL     string
	Clients int
	// Pause is the time between two operations of a client.
	Pause time.Duration
	// Mix is what clients do; only calls if it is empty.
	Mix Mix
	// Dial connects a client. Every other client makes a new connection for each request, and the rest keep theirs.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Unasked is what errors of Dial wrap that have nothing to do with the server; may be nil.
	Unasked error
	// Patience is how long a request may take.
	Patience time.Duration
	// Seed is what the clients' choices depend on.
	Seed uint64
}

// Swarm is clients at work.
type Swarm struct {
	options  Options
	clients  []*client
	stopping chan struct{}
	stop     func()
	running  sync.WaitGroup

	mu     sync.Mutex
	report Report
}

// Start begins. The clients go on until Stop.
func Start(ctx context.Context, options Options) *Swarm {
	if options.Mix == (Mix{}) {
		options.Mix.Calls = 1
	}
	s := &Swarm{options: options, stopping: make(chan struct{})}
	s.stop = sync.OnceFunc(func() { close(s.stopping) })
	for n := range options.Clients {
		transport := &http.Transport{DialContext: options.Dial, DisableKeepAlives: n%2 == 1}
		c := &client{swarm: s, number: n, http: &http.Client{Transport: transport}, random: rand.New(rand.NewPCG(options.Seed, uint64(n)))}
		s.clients = append(s.clients, c)
		s.running.Go(func() { c.run(ctx) })
	}
	return s
}

// Stop lets the clients finish what they do, has them end their sessions, and returns what they have seen.
func (s *Swarm) Stop() *Report {
	s.stop()
	s.running.Wait()
	return s.Report()
}

// Report returns what the clients have seen so far.
func (s *Swarm) Report() *Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	report := s.report
	report.Incidents = slices.Clone(report.Incidents)
	return &report
}

// Owners returns the number of sessions by the host of their process.
func (s *Swarm) Owners() map[string]int {
	owners := map[string]int{}
	for _, c := range s.clients {
		if owner := c.owner(); owner != "" {
			owners[owner]++
		}
	}
	return owners
}

// Idle returns the clients that have not had an answer of a tool since then.
func (s *Swarm) Idle(since time.Time) (numbers []int) {
	for _, c := range s.clients {
		if at := c.lastAnswer(); !at.After(since) {
			numbers = append(numbers, c.number)
		}
	}
	return numbers
}

func (s *Swarm) count(what func(*Report)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what(&s.report)
}

func (s *Swarm) tell(incident Incident) {
	s.count(func(r *Report) { r.Incidents = append(r.Incidents, incident) })
}

// client is one client. It has a session at a time.
type client struct {
	swarm  *Swarm
	number int
	http   *http.Client
	random *rand.Rand

	session *session // of the client's own goroutine

	mu       sync.Mutex
	host     string
	answered time.Time
}

func (c *client) owner() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.host
}

func (c *client) lastAnswer() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered
}

func (c *client) noteOwner(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.host = host
}

func (c *client) noteAnswer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = time.Now()
}

func (c *client) run(ctx context.Context) {
	defer c.http.CloseIdleConnections()
	defer func() {
		if c.session != nil {
			c.session.end(context.WithoutCancel(ctx))
		}
	}()
	timer := time.NewTimer(time.Duration(c.random.Int64N(int64(c.swarm.options.Pause) + 1)))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.swarm.stopping:
			return
		case <-timer.C:
		}
		c.act(ctx)
		timer.Reset(c.swarm.options.Pause)
	}
}

// act does one thing, and tells what went wrong.
func (c *client) act(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.swarm.options.Patience)
	defer cancel()
	began, owner := time.Now(), c.owner()
	err := c.choose()(ctx)
	if err == nil {
		return
	}
	failed, ok := errors.AsType[*failure](err)
	if !ok {
		failed = &failure{Broken, err.Error()}
	}
	if c.swarm.options.Unasked != nil && errors.Is(err, c.swarm.options.Unasked) {
		failed = &failure{Unasked, err.Error()}
	}
	c.swarm.tell(Incident{At: time.Now(), Took: time.Since(began), Kind: failed.kind, Client: c.number, Owner: owner, Text: failed.text})
	if failed.kind == Over || failed.kind == Wrong {
		c.session = nil
		c.noteOwner("")
	}
}

// choose returns what the client does next.
func (c *client) choose() func(context.Context) error {
	if c.session == nil {
		return c.open
	}
	mix, s := c.swarm.options.Mix, c.session
	switch n := c.random.IntN(mix.Calls + mix.Streams + mix.Cancelled + mix.Questions); {
	case n < mix.Calls:
		return s.tick
	case n < mix.Calls+mix.Streams:
		return s.stream
	case n < mix.Calls+mix.Streams+mix.Cancelled:
		return s.cancel
	default:
		return s.question
	}
}

// open begins a session, and finds out which process it has.
func (c *client) open(ctx context.Context) error {
	s, err := c.initialize(ctx)
	if err != nil {
		return err
	}
	c.session = s
	c.swarm.count(func(r *Report) { r.Sessions++ })
	return s.tick(ctx)
}

// failure is an operation that did not go well.
type failure struct {
	kind Kind
	text string
}

func (f *failure) Error() string { return string(f.kind) + ": " + f.text }

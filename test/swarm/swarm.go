package swarm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// Make is what a client is made of.
type Make string

// The makes.
const (
	Raw          Make = "raw" // speaks HTTP by itself
	GoSDK        Make = "go-sdk"
	TypeScriptV1 Make = "typescript-v1"
	TypeScriptV2 Make = "typescript-v2"
)

// Clients is how many clients there are of each make.
type Clients struct {
	Raw, GoSDK, TypeScriptV1, TypeScriptV2 int
}

// Number is how many clients there are.
func (c Clients) Number() int { return c.Raw + c.GoSDK + c.TypeScriptV1 + c.TypeScriptV2 }

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
	Clients Clients
	// Node is for clients in TypeScript.
	Node Node
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
	stop     func() error
	running  sync.WaitGroup

	mu     sync.Mutex
	report Report
}

// Start begins. The clients go on until Stop.
func Start(ctx context.Context, options Options) (*Swarm, error) {
	if options.Mix == (Mix{}) {
		options.Mix.Calls = 1
	}
	if options.Dial == nil {
		options.Dial = new(net.Dialer).DialContext
	}
	s := &Swarm{options: options, stopping: make(chan struct{}), report: Report{By: map[Make]int{}, Quirks: map[string]int{}}}
	programs, err := s.startNodes(ctx)
	if err != nil {
		return nil, err
	}
	s.stop = sync.OnceValue(func() error {
		close(s.stopping)
		s.running.Wait()
		return programs.end()
	})
	for _, kind := range []struct {
		make   Make
		number int
	}{{Raw, options.Clients.Raw}, {GoSDK, options.Clients.GoSDK}, {TypeScriptV1, options.Clients.TypeScriptV1}, {TypeScriptV2, options.Clients.TypeScriptV2}} {
		for range kind.number {
			s.add(ctx, kind.make, programs)
		}
	}
	return s, nil
}

// add begins with one more client.
func (s *Swarm) add(ctx context.Context, kind Make, programs *nodes) {
	n := len(s.clients)
	c := &client{swarm: s, number: n, make: kind, keeps: n%2 == 0, random: rand.New(rand.NewPCG(s.options.Seed, uint64(n)))}
	transport := &http.Transport{DialContext: s.options.Dial, DisableKeepAlives: !c.keeps}
	c.done = transport.CloseIdleConnections
	switch kind {
	case Raw:
		c.begin = func(ctx context.Context) (session, error) {
			return c.initialize(ctx, &http.Client{Transport: transport})
		}
	case GoSDK:
		c.begin = func(ctx context.Context) (session, error) { return c.connect(ctx, transport) }
	case TypeScriptV1, TypeScriptV2:
		c.begin = func(ctx context.Context) (session, error) { return programs.open(ctx, c) }
	}
	s.clients = append(s.clients, c)
	s.running.Go(func() { c.run(ctx) })
}

// Stop lets the clients finish what they do, has them end their sessions, and returns what they have seen.
func (s *Swarm) Stop() *Report {
	if err := s.stop(); err != nil {
		report := s.Report()
		report.Incidents = append(report.Incidents, Incident{At: time.Now(), Kind: Wrong, Client: -1, Text: err.Error()})
		return report
	}
	return s.Report()
}

// Report returns what the clients have seen so far.
func (s *Swarm) Report() *Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report.clone()
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
func (s *Swarm) Idle(since time.Time) []int { return s.idle(since, func(*client) bool { return true }) }

// IdleRaw is Idle for the clients that have no SDK. SDKs wait between attempts for as long as they like: see OwnPauses.
func (s *Swarm) IdleRaw(since time.Time) []int {
	return s.idle(since, func(c *client) bool { return c.make == Raw })
}

func (s *Swarm) idle(since time.Time, of func(*client) bool) (numbers []int) {
	for _, c := range s.clients {
		if at := c.lastAnswer(); of(c) && !at.After(since) {
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

// client is one client. It has a session at a time.
type client struct {
	swarm  *Swarm
	number int
	make   Make
	keeps  bool // its connections
	random *rand.Rand
	begin  func(context.Context) (session, error)
	done   func()

	session *checked // of the client's own goroutine

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
	defer c.done()
	defer func() { c.leave(ctx, true) }()
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

// leave forgets the session. If it is not over, the client ends it.
func (c *client) leave(ctx context.Context, lives bool) {
	if c.session == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.swarm.options.Patience)
	defer cancel()
	c.session.session.end(ctx, lives)
	c.session = nil
}

// act does one thing, and tells what went wrong.
func (c *client) act(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.swarm.options.Patience)
	defer cancel()
	began, owner := time.Now(), c.owner()
	err := c.choose()(ctx)
	if err == nil {
		c.swarm.count(func(r *Report) { r.By[c.make]++ })
		return
	}
	failed := c.swarm.failureOf(err)
	c.swarm.count(func(r *Report) {
		r.Incidents = append(r.Incidents, Incident{At: time.Now(), Took: time.Since(began), Kind: failed.kind, Client: c.number, Make: c.make, Owner: owner, Text: failed.text})
		if failed.quirk != "" {
			r.Quirks[string(c.make)+" "+failed.quirk]++
		}
	})
	if failed.kind == Over || failed.kind == Wrong || failed.gone {
		c.leave(ctx, false)
		c.noteOwner("")
	}
}

// failureOf says what an error means.
func (s *Swarm) failureOf(err error) *failure {
	if s.options.Unasked != nil && errors.Is(err, s.options.Unasked) {
		return &failure{kind: Unasked, text: err.Error()}
	}
	if failed, ok := errors.AsType[*failure](err); ok {
		return failed
	}
	return &failure{kind: Broken, text: err.Error()}
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
	s, err := c.begin(ctx)
	if err != nil {
		return err
	}
	c.session = &checked{client: c, session: s}
	c.swarm.count(func(r *Report) { r.Sessions++ })
	return c.session.tick(ctx)
}

// failure is an operation that did not go well.
type failure struct {
	kind  Kind
	text  string
	gone  bool   // the session is of no more use, whatever the kind
	quirk string // what the SDK did by itself; empty for nothing
}

func (f *failure) Error() string { return string(f.kind) + ": " + f.text }

func wrong(format string, values ...any) *failure {
	return &failure{kind: Wrong, text: fmt.Sprintf(format, values...)}
}

package prober

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// Prober looks after instances.
type Prober struct {
	options Options
	share   int // of the workers, for the instances of one server
	suspect int // of the workers, for all who did not answer in time
	metrics *metrics

	// What asks; tests put something else here.
	verify func(context.Context, Instance) error
	fetch  func(context.Context, Instance, question) (reply, error)
	push   func(context.Context, Instance, documentKind) (adapterapi.AccessState, error)
	close  func()

	wake chan struct{} // there may be something to do
	jobs sync.WaitGroup

	mu       sync.Mutex
	started  bool
	stopped  bool
	servers  map[types.NamespacedName]*server
	gone     map[types.NamespacedName]departures // of servers that have no pods for now
	queue    queue
	busy     int         // instances that are being asked
	suspects int         // those among them that did not answer in time
	parked   []*instance // suspects that wait because too many are being asked
	lists    int64       // generation of the newest list of pods; 0 while there can be none
}

// job is one time that an instance is asked.
type job struct {
	instance *instance
	asks     Instance // as it was when the job began
	pushes   []documentKind
	verify   bool
	question question
	suspect  bool
	stale    bool // the instance has changed since; what comes of the job does not count
	cancel   context.CancelFunc
}

// answer is the result of a job.
type answer struct {
	pushes    []pushAnswer // those that were tried
	sendErr   error        // of the last of them, if the adapter did not answer in time
	verified  bool         // it was tried
	verifyErr error
	asked     bool // it was tried
	reply     reply
	askErr    error
	late      bool // the instance did not answer before the deadline
}

// New returns a Prober. It sends no request before Start is called.
func New(options Options) *Prober {
	options = options.withDefaults()
	ask := newAsker(options)
	p := &Prober{
		options: options,
		share:   max(1, options.Workers/4),
		suspect: max(1, options.Workers/2),
		verify:  ask.verify,
		fetch:   ask.fetch,
		push:    ask.push,
		close:   ask.close,
		wake:    make(chan struct{}, 1),
		servers: map[types.NamespacedName]*server{},
		gone:    map[types.NamespacedName]departures{},
	}
	p.metrics = newMetrics(options.Registry, p)
	return p
}

// NeedLeaderElection says that one manager asks, not all of them.
func (p *Prober) NeedLeaderElection() bool { return true }

// Start asks instances until the context ends, and returns when no request is in flight.
func (p *Prober) Start(ctx context.Context) error {
	p.mu.Lock()
	again := p.started
	p.started = true
	p.mu.Unlock()
	if again {
		return errors.New("start prober: it was started before")
	}
	p.jobs.Go(func() { p.beginTerm(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		if wait, ok := p.dispatch(ctx); ok {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-timer.C:
		}
	}
	p.mu.Lock()
	p.stopped = true
	for _, s := range p.servers {
		if s.timer != nil {
			s.timer.Stop()
		}
	}
	p.mu.Unlock()
	p.jobs.Wait()
	p.close()
	return nil
}

func (p *Prober) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// dispatch starts what is due. It returns how long to wait for the next, and false if
// there is nothing to wait for but the end of a job.
func (p *Prober) dispatch(ctx context.Context) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for p.busy < p.options.Workers && len(p.queue) > 0 {
		first := p.queue[0]
		if wait := first.at.Sub(now); wait > 0 {
			return wait, true
		}
		heap.Pop(&p.queue)
		switch s := first.server; {
		case s.running >= p.share:
			first.state = parked
			s.parked = append(s.parked, first)
		case first.suspect && p.suspects >= p.suspect:
			first.state = parked
			p.parked = append(p.parked, first)
		default:
			p.begin(ctx, first, now)
		}
	}
	return 0, false
}

func (p *Prober) begin(ctx context.Context, i *instance, now time.Time) {
	ctx, cancel := context.WithCancel(ctx)
	j := &job{
		instance: i, asks: i.Instance, pushes: i.pushNow(now), verify: i.verifyNow(now), question: i.question(now), suspect: i.suspect, cancel: cancel,
	}
	if j.verify {
		i.verifiedAt = now
	}
	if slices.Contains(j.pushes, peersDocument) {
		i.listedAt = now
	}
	i.state, i.running = running, j
	i.server.running++
	p.busy++
	if j.suspect {
		p.suspects++
	}
	p.jobs.Go(func() {
		defer cancel()
		p.end(j, p.ask(ctx, j))
	})
}

// ask does what a job is about, within its deadline.
func (p *Prober) ask(ctx context.Context, j *job) answer {
	var a answer
	if err := p.send(ctx, j, &a); err != nil {
		a.sendErr = err
		return a
	}
	ctx, cancel := context.WithTimeout(ctx, j.asks.Timeout)
	defer cancel()
	if j.verify {
		a.verified = true
		a.verifyErr = p.metrics.timed(kindVerify, func() error { return p.verify(ctx, j.asks) })
	}
	if ctx.Err() == nil {
		a.asked = true
		a.askErr = p.metrics.timed(kindCatalog, func() (err error) {
			a.reply, err = p.fetch(ctx, j.asks, j.question)
			return err
		})
	}
	// An answer that is here may wait for others to be decoded. A deadline that passes
	// meanwhile is not the fault of the instance.
	a.late = errors.Is(ctx.Err(), context.DeadlineExceeded) && (!a.asked || silent(a.askErr))
	if j.verify && a.late {
		a.asked = false // the verification left it too little time
	}
	return a
}

// silent says whether an error means that the instance did not answer.
func silent(err error) bool {
	class := mcpprobe.ClassOf(err)
	return err != nil && (class == mcpprobe.Timeout || class == mcpprobe.Unreachable)
}

// end records the result of a job and schedules the next one.
func (p *Prober) end(j *job, a answer) {
	p.mu.Lock()
	i := j.instance
	now := time.Now()
	i.running = nil
	i.server.running--
	p.busy--
	p.unpark(&i.server.parked)
	if j.suspect {
		p.suspects--
		p.unpark(&p.parked)
	}
	tell := false
	if i.state != gone {
		if !j.stale && !canceled(a) {
			tell = p.settle(i, a, now)
		}
		i.at = i.next(now)
		p.enqueue(i)
		p.list(i.server, now)
	}
	p.mu.Unlock()
	if tell {
		p.options.Notify(i.server.name)
	}
	p.signal()
}

func canceled(a answer) bool {
	return slices.ContainsFunc(a.pushes, func(p pushAnswer) bool { return p.err != nil && mcpprobe.ClassOf(p.err) == mcpprobe.Canceled }) ||
		a.verifyErr != nil && mcpprobe.ClassOf(a.verifyErr) == mcpprobe.Canceled ||
		a.askErr != nil && mcpprobe.ClassOf(a.askErr) == mcpprobe.Canceled
}

// unpark lets those who wait try again.
func (p *Prober) unpark(waiting *[]*instance) {
	for _, i := range *waiting {
		if i.state == parked {
			p.enqueue(i)
		}
	}
	clear(*waiting)
	*waiting = (*waiting)[:0]
}

func (p *Prober) enqueue(i *instance) {
	if i.IP == "" {
		i.state, i.index = queued, -1 // until it has one
		return
	}
	i.state = queued
	heap.Push(&p.queue, i)
}

// settle takes an answer in, and says whether to call Notify.
func (p *Prober) settle(i *instance, a answer, now time.Time) bool {
	before := i.result
	i.suspect = a.late
	for _, pushed := range a.pushes {
		p.settlePush(i, a, pushed, now)
	}
	if a.verified {
		i.verified(i.meshed(a), now)
	}
	switch {
	case a.sendErr != nil:
		i.unanswered(a.sendErr, now)
		i.askNext = true
	case !a.asked:
		i.askNext = true
	case errors.Is(a.askErr, errNoRoom):
		i.postponed()
	case a.askErr != nil:
		i.unanswered(a.askErr, now)
	default:
		i.answered(a.reply, now)
	}
	if before.Outcome != i.result.Outcome {
		p.options.Log.V(1).Info("Outcome of asking an instance changed", "MCPServer", klog.KRef(i.server.name.Namespace, i.server.name.Name),
			"Pod", klog.KRef(i.Pod.Namespace, i.Pod.Name), "from", before.Outcome, "to", i.result.Outcome, "message", i.result.Message)
	}
	return p.changed(i.server, before, i.result, now)
}

// changed says whether to call Notify: at once for what matters, and for what changes
// all the time at most once a minute.
func (p *Prober) changed(s *server, before, after Result, now time.Time) bool {
	if differ(before, after) {
		s.counts, s.words = s.sum(), false
		return true
	}
	s.words = s.words || before.Message != after.Message || words(before) != words(after)
	if !s.words && s.counts == s.sum() {
		return false
	}
	if wait := s.quiet.Sub(now); wait > 0 {
		if s.timer == nil && !p.stopped {
			s.timer = time.AfterFunc(wait, func() { p.tellLater(s) })
		}
		return false
	}
	s.quiet = now.Add(softEvery)
	s.counts, s.words = s.sum(), false
	return true
}

// softEvery is how often Notify is called for what changes all the time: the number of
// sessions and of failed processes, and words that mean the same.
const softEvery = time.Minute

func (p *Prober) tellLater(s *server) {
	p.mu.Lock()
	s.timer = nil
	tell := p.servers[s.name] == s && !p.stopped && (s.words || s.counts != s.sum())
	if tell {
		s.quiet = time.Now().Add(softEvery)
		s.counts, s.words = s.sum(), false
	}
	p.mu.Unlock()
	if tell {
		p.options.Notify(s.name)
	}
}

// differ says whether two results differ in substance.
func differ(a, b Result) bool {
	return substanceOf(a) != substanceOf(b)
}

// substance is what matters of a result.
type substance struct {
	outcome                   Outcome
	flapping, silent          bool
	reported, ready           bool
	mute                      bool // it has never answered, and did not when it was asked
	reason                    string
	failures                  int64 // the second one matters, and no later one
	crashes                   int64 // as with failures
	offered, tooLarge, stored bool
	digest                    string
	access                    Access // zero if there is none
	keys                      string // which keys it accepts and uses; no number of sessions matters but 0
}

func substanceOf(r Result) substance {
	s := substance{outcome: r.Outcome, flapping: r.Flapping, silent: r.Message == "", crashes: min(r.Processes.Failed(), 2)}
	if r.Report != nil {
		s.reported, s.ready, s.reason = true, r.Report.Ready, r.Report.Reason
		s.failures = min(r.Report.Failures, 2)
	}
	if r.Catalog != nil {
		s.offered, s.digest = true, r.Catalog.Summary.Catalog.Digest
		s.tooLarge, s.stored = r.Catalog.Summary.TooLarge != "", r.Catalog.Stored == nil
	}
	if r.Access != nil {
		s.access = *r.Access
	}
	s.mute = r.Report == nil && r.Silent
	s.keys = keysUsed(r.Keys)
	return s
}

func keysUsed(use *adapterapi.KeyUse) string {
	if use == nil {
		return ""
	}
	parts := []string{use.Current}
	for _, other := range use.Others {
		parts = append(parts, fmt.Sprintf("%s %t", other.ID, other.Sessions > 0))
	}
	return strings.Join(parts, " ")
}

func words(r Result) string {
	if r.Report == nil {
		return ""
	}
	return r.Report.Error
}

// queue is a heap of instances by when they are asked.
type queue []*instance

func (q queue) Len() int           { return len(q) }
func (q queue) Less(a, b int) bool { return q[a].at.Before(q[b].at) }
func (q queue) Swap(a, b int) {
	q[a], q[b] = q[b], q[a]
	q[a].index, q[b].index = a, b
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	i := x.(*instance)
	i.index = len(*q)
	*q = append(*q, i)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	i := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	i.index = -1
	return i
}

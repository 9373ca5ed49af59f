package news

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

const (
	// beginTimeout is for another pod to begin a stream, for which its processes may have to answer.
	beginTimeout = settleTimeout + 5*time.Second
	// olderRetry is the time between two attempts at a pod of an older version, which has no news.
	olderRetry = 10 * time.Minute
	// handover is how long the other pod has to end a stream when the next one has begun. The two come over different
	// connections, so the last news of the first one may still be on their way.
	handover = 10 * time.Second
	// olderHandover is the same for a pod of an older version, which does not end a stream by itself.
	olderHandover = 500 * time.Millisecond
)

// pace is that of attempts to open a stream. Clients miss changes meanwhile, so it gets no slower than this.
var pace = mux.Pace{First: 500 * time.Millisecond, Last: 10 * time.Second}

var (
	// errOlder says that a pod has no news.
	errOlder = errors.New("the pod is of an older version, and has no news")
	// errEnded says that a pod has ended a stream, after all that it had to tell.
	errEnded = errors.New("the pod has ended the stream")
	// errGone is why a link stops whose pod is not in the list any more.
	errGone = errors.New("the pod is gone")
)

// link keeps a stream from one pod.
type link struct {
	news   *News
	pod    sessionid.Owner
	stop   context.CancelCauseFunc
	demand atomic.Pointer[demand]

	// Of the goroutine of run.
	current *stream // nil if there is none
	last    *stream // the current one, or else the one that was lost; nil if there was none
	lost    bool    // a stream has ended by itself, and there was no other since
	began   time.Time
	backOff mux.BackOff
	older   bool // the log says so
}

func (n *News) link(ctx context.Context, pod sessionid.Owner) *link {
	l := &link{news: n, pod: pod}
	l.demand.Store(n.demand)
	ctx, l.stop = context.WithCancelCause(ctx)
	go l.run(ctx)
	return l
}

func (l *link) run(ctx context.Context) {
	defer func() {
		l.replace(nil)
		if errors.Is(context.Cause(ctx), errGone) && l.last != nil {
			l.last.tellLost()
		}
	}()
	for ctx.Err() == nil {
		wanted := l.demand.Load()
		wait := time.Duration(-1)
		if l.current == nil || l.current.demand != wanted {
			if wait = l.open(ctx, wanted); wait == 0 {
				continue // there may be a newer demand
			}
		}
		l.rest(ctx, wanted, wait)
	}
}

// rest waits until there is something to do: after so long, or without an end if that is negative.
func (l *link) rest(ctx context.Context, wanted *demand, wait time.Duration) {
	var due <-chan time.Time
	newer := wanted.newer
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due, newer = timer.C, nil
	}
	var over <-chan struct{}
	if l.current != nil {
		over = l.current.over
	}
	select {
	case <-due:
	case <-newer:
	case <-over:
		l.noteLost()
		if time.Since(l.began) >= mux.Lasting {
			l.backOff.Reset()
		}
		pause(ctx, l.backOff.Failed(nil, pace))
	case <-ctx.Done():
	}
}

// noteLost notes whether the stream has ended by itself.
func (l *link) noteLost() {
	if l.current == nil {
		return
	}
	select {
	case <-l.current.over:
		l.lost = true
		l.replace(nil)
	default:
	}
}

func (l *link) replace(by *stream) {
	switch former := l.current; {
	case former == nil:
	case by == nil:
		former.stop()
	default:
		go former.finish()
	}
	if l.current = by; by != nil {
		l.last = by
	}
}

// open opens a stream for a demand, in the place of the one that there is. It returns when to try again if it fails, and
// otherwise 0.
func (l *link) open(ctx context.Context, wanted *demand) (again time.Duration) {
	replaces := ""
	if l.current != nil {
		replaces = l.current.id
	}
	next := l.news.stream(ctx, l.pod, wanted, replaces)
	timer := time.NewTimer(beginTimeout)
	defer timer.Stop()
	select {
	case <-next.begun:
	case <-next.over:
	case <-timer.C:
	}
	select {
	case <-next.begun:
	default:
		next.stop()
		return l.failed(next)
	}
	if !next.follows {
		l.noteLost() // it may have ended while this one was on its way
	}
	l.tellMissed(next)
	l.replace(next)
	l.began, l.lost, l.older = time.Now(), false, false
	return 0
}

func (l *link) failed(next *stream) time.Duration {
	<-next.over
	if !errors.Is(next.err, errOlder) {
		l.news.options.Log.V(1).Info("No news of a pod", "pod", l.pod.Address.String(), "reason", fmt.Sprint(next.err))
		return l.backOff.Failed(next.err, pace)
	}
	if !l.older {
		l.older = true
		l.news.options.Log.Info("Clients that listen here get no notifications of changes at a pod of an older version", "pod", l.pod.Address.String())
	}
	return olderRetry
}

// tellMissed tells clients what may have changed before a stream begins: all, if there was a stream that was lost, and else
// what the stream before was not about. Where no process ran, nothing has changed.
func (l *link) tellMissed(next *stream) {
	for i, want := range next.demand.wants {
		missed := want.Filter
		if l.current != nil {
			missed = missed.Without(filterOf(l.current.demand.wants, want.Principal))
		}
		if l.lost || next.running[i] {
			l.news.tellMissed(want.Principal, missed)
		}
	}
}

// stream is a stream of news from another pod.
type stream struct {
	news    *News
	demand  *demand
	stop    context.CancelFunc
	begun   chan struct{} // closed once id, follows and running are set
	id      string        // that the pod has given it; empty if the pod is of an older version
	follows bool          // the pod has ended the stream before when this one began
	running []bool        // for which Wants the pod has a process
	told    []atomic.Bool // for which Wants the pod has or had one
	over    chan struct{} // closed once err is set
	err     error
}

// stream opens a stream. The pod ends the stream that it replaces when it has begun.
func (n *News) stream(ctx context.Context, from sessionid.Owner, wanted *demand, replaces string) *stream {
	s := &stream{news: n, demand: wanted, begun: make(chan struct{}), told: make([]atomic.Bool, len(wanted.wants)), over: make(chan struct{})}
	ctx, s.stop = context.WithCancel(ctx)
	go func() {
		defer close(s.over)
		defer s.stop()
		s.err = s.run(ctx, from, replaces)
	}()
	return s
}

func (s *stream) run(ctx context.Context, from sessionid.Owner, replaces string) error {
	target := Path
	if replaces != "" {
		target += "?" + url.Values{replacesParameter: {replaces}}.Encode()
	}
	events, into := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = events.CloseWithError(read(events, len(s.demand.wants), s))
	}()
	a := &answer{header: http.Header{}, body: into}
	err := s.news.options.Relay.Forward(ctx, a, from, &relay.Request{
		Method: http.MethodGet, Target: target, Host: from.Address.String(), Body: s.demand.body,
	})
	_ = into.Close()
	<-done
	if s.running != nil {
		s.news.hears.Add(-1)
	}
	switch {
	case err != nil:
		return err
	case a.status == http.StatusNotFound:
		return errOlder
	case a.status != http.StatusOK:
		return fmt.Errorf("the pod answers with status %d", a.status)
	}
	return errEnded
}

// finish reads a stream to its end when the next one has begun. If the end does not come, the last news may be lost.
func (s *stream) finish() {
	wait := handover
	if s.id == "" {
		wait = olderHandover
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-s.over:
	case <-timer.C:
	}
	s.stop()
	<-s.over
	if s.id != "" && !errors.Is(s.err, errEnded) {
		s.tellLost()
	}
}

// tellLost tells clients what may have changed at a pod that has not been heard to the end. Where no process ran, nothing
// has changed.
func (s *stream) tellLost() {
	for i := range s.told {
		if s.told[i].Load() {
			s.tellMissed(i)
		}
	}
}

func (s *stream) begin(first *event) {
	s.id, s.follows, s.running = first.Stream, first.Follows, first.running(len(s.told))
	for i, runs := range s.running {
		s.told[i].Store(runs)
	}
	s.news.hears.Add(1)
	close(s.begun)
}

func (s *stream) tell(of int, changed subscription.Filter) {
	s.told[of].Store(true)
	s.news.options.Hub.Tell(s.demand.wants[of].Principal, changed)
}

func (s *stream) tellMissed(of int) {
	s.told[of].Store(true)
	s.news.tellMissed(s.demand.wants[of].Principal, s.demand.wants[of].Filter)
}

// answer has the events of an answer of another pod read. Nothing else of an answer counts but its status.
type answer struct {
	header http.Header
	status int
	body   *io.PipeWriter
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	if a.status != http.StatusOK {
		return len(b), nil
	}
	return a.body.Write(b)
}

// FlushError is for http.ResponseController.
func (a *answer) FlushError() error { return nil }

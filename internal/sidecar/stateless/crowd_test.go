package stateless

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// newCrowd has an endpoint with two processes at most, and two calls in flight at the
// first, so that it is crowded.
func newCrowd(t *testing.T, change func(*Options)) (s *stage, first *script, calls []*posted) {
	t.Helper()
	s = newStage(t, func(o *Options) {
		o.Limits.Crowd, o.Limits.Processes = 2, 2
		if change != nil {
			change(o)
		}
	}, nil)
	for range 2 {
		calls = append(calls, s.post(enveloped("1", "some/method", "")))
		if first == nil {
			first = s.process()
		}
		await(t, "the call to be there", func() bool { return s.endpoint.inFlight() == len(calls) })
	}
	return s, first, calls
}

func (e *Endpoint) inFlight() int {
	running, err := e.process.running(context.Background())
	if err != nil {
		return 0
	}
	load, _ := running.load()
	return load
}

func (e *Endpoint) others() int {
	e.crowd.mu.Lock()
	defer e.crowd.mu.Unlock()
	return len(e.crowd.others)
}

// A request that finds the process crowded does not wait for another one, but those after
// it find one. It ends when nobody needs it, and requests go to the first again.
func TestCrowd(t *testing.T) {
	s, first, calls := newCrowd(t, nil)
	late := s.post(enveloped("3", "some/method", ""))
	second := s.process()
	await(t, "the second process to be known", func() bool { return s.endpoint.others() == 1 })
	other := s.post(enveloped("4", "some/method", ""))
	second.answer(second.next(t), `"result":{"by":"second"}`)
	other.want(200, `"id":4`, `"by":"second"`)
	for range 3 {
		first.answer(first.next(t), `"result":{"by":"first"}`)
	}
	for _, call := range append(calls, late) {
		call.want(200, `"by":"first"`)
	}
	again := s.post(enveloped("5", "some/method", ""))
	request := first.next(t) // which is not crowded any more
	await(t, "the second process to have no calls", func() bool {
		load, _ := s.endpoint.crowd.all()[0].load()
		return load == 0
	})
	s.endpoint.crowd.all()[0].idleNow(t)
	<-second.closed
	await(t, "the second process to be forgotten", func() bool { return s.endpoint.others() == 0 })
	first.answer(request, `"result":{}`)
	again.want(200)
}

// idleNow lets the time pass after which a process ends that has nothing to do. The time
// itself is TestIdle's.
func (r *run) idleNow(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.idle.Reset(0) {
		t.Error("the process would never end")
	}
}

// N-06: whichever process has news, every client gets those that it asked for; and each
// process is told when nobody listens any more.
func TestCrowdListens(t *testing.T) {
	s, first, _ := newCrowd(t, nil)
	for range 2 {
		first.next(t)
	}
	early, upstream := s.open(first, `"early"`)
	s.post(enveloped("3", "some/method", ""))
	second := s.process()
	repeated := s.wantUpstream(second, allKinds)
	second.emit(news(acknowledged, repeated, `"notifications":{`+allKinds+`},`))
	late := s.post(enveloped(`"late"`, methodListen, `"notifications":{"promptsListChanged":true},`))
	s.wantTold(late, `"late"`, `"promptsListChanged":true`)

	await(t, "the client to listen at both", func() bool { return s.endpoint.repeats() == 2 })
	second.emit(news(toolsChanged, repeated, ""))
	second.emit(news("notifications/prompts/list_changed", repeated, ""))
	first.emit(news(toolsChanged, upstream, ""))
	s.equal("early, of the second", early.event(), newsFor(toolsChanged, `"early"`, ""))
	s.equal("early, of the first", early.event(), newsFor(toolsChanged, `"early"`, ""))
	s.equal("late, of the second", late.event(), newsFor("notifications/prompts/list_changed", `"late"`, ""))

	early.leave()
	late.leave()
	s.wantCancelled(second, repeated)
}

// repeats is how many subscriptions there are at other processes.
func (e *Endpoint) repeats() (sum int) {
	e.crowd.mu.Lock()
	defer e.crowd.mu.Unlock()
	for _, other := range e.crowd.others {
		other.mu.Lock()
		sum += len(other.hub.listeners)
		other.mu.Unlock()
	}
	return sum
}

// A process that cannot be had is not asked for with every request.
func TestCrowdWithoutRoom(t *testing.T) {
	var started atomic.Int32
	s, first, calls := newCrowd(t, func(o *Options) {
		acquire := o.Acquire
		o.Acquire = func(ctx context.Context) (mux.Server, error) {
			if started.Add(1) > 1 {
				return nil, errors.New("no room")
			}
			return acquire(ctx)
		}
	})
	for i := range 4 {
		calls = append(calls, s.post(enveloped("1", "some/method", "")))
		await(t, "the call to be there", func() bool { return s.endpoint.inFlight() == 3+i })
		if i > 0 {
			continue
		}
		await(t, "the start to fail", func() bool {
			s.endpoint.crowd.mu.Lock()
			defer s.endpoint.crowd.mu.Unlock()
			failed := s.endpoint.crowd.backOff.Wait() > 0
			if failed { // the next requests come before the next start, also on a slow machine
				s.endpoint.crowd.backOff.Failed(errNoRoom, mux.Pace{First: time.Hour, Last: time.Hour})
			}
			return failed
		})
	}
	for range calls {
		first.answer(first.next(t), `"result":{}`)
	}
	for _, call := range calls {
		call.want(200)
	}
	if got := started.Load(); got != 2 {
		t.Errorf("%d processes were asked for, want 2", got)
	}
}

// A drain waits for calls at every process.
func TestCrowdDrains(t *testing.T) {
	s, first, calls := newCrowd(t, nil)
	calls = append(calls, s.post(enveloped("3", "some/method", "")))
	second := s.process()
	await(t, "the second process to be known", func() bool { return s.endpoint.others() == 1 })
	calls = append(calls, s.post(enveloped("4", "some/method", "")))
	requests := []session.Message{first.next(t), first.next(t), first.next(t)}
	last := second.next(t)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.endpoint.Drain(t.Context())
	}()
	for _, request := range requests {
		first.answer(request, `"result":{}`)
	}
	<-first.closed
	select {
	case <-drained:
		t.Error("the drain did not wait for a call")
	default:
	}
	second.answer(last, `"result":{}`)
	<-second.closed
	<-drained
	for _, call := range calls {
		call.want(200, "result")
	}
}

// A subscription outlives many other processes, and must not keep them.
func TestCrowdIsForgotten(t *testing.T) {
	s, first, _ := newCrowd(t, func(o *Options) { o.Limits.Calls = 100 })
	for range 2 {
		first.next(t)
	}
	s.open(first, `"early"`)
	for range 5 {
		s.post(enveloped("3", "some/method", ""))
		second := s.process()
		await(t, "it to be known", func() bool { return s.endpoint.others() == 1 })
		s.endpoint.crowd.all()[0].idleNow(t)
		<-second.closed
		await(t, "it to be forgotten", func() bool { return s.endpoint.others() == 0 })
	}
	running := s.endpoint.process.all()[0]
	running.mu.Lock()
	defer running.mu.Unlock()
	for c := range running.hub.listeners {
		if len(c.repeats) > 1 {
			t.Errorf("a subscription keeps %d processes that have ended", len(c.repeats))
		}
	}
}

// What a process has begun only that process can go on with: a task, or a call that has
// asked for input.
func TestCrowdGoesOn(t *testing.T) {
	for name, params := range map[string][2]string{
		"task":  {"tasks/get", `"taskId":"t1",`},
		"round": {"tools/call", `"name":"x","requestState":"of the second","inputResponses":{},`},
	} {
		t.Run(name, func(t *testing.T) {
			s, first, calls := newCrowd(t, nil)
			calls = append(calls, s.post(enveloped("3", "some/method", "")))
			second := s.process()
			await(t, "the second process to be known", func() bool { return s.endpoint.others() == 1 })
			begun := s.post(enveloped("4", "tools/call", `"name":"x",`))
			second.answer(second.next(t), `"result":{"resultType":"task","task":{"taskId":"t1","status":"working"},"requestState":"of the second"}`)
			begun.want(200)
			for _, call := range calls { // so that the first is not crowded any more
				first.answer(first.next(t), `"result":{}`)
				_ = call
			}
			for _, call := range calls {
				call.want(200)
			}
			var headers []string
			if params[0] == "tasks/get" {
				headers = []string{headerName, "t1"}
			}
			s.post(enveloped("5", params[0], params[1]), headers...)
			select {
			case request := <-first.sent:
				t.Errorf("a process that never saw it is asked: %s", request.Bytes)
			case <-second.sent:
			}
		})
	}
}

// A process that has ended takes no requests while others can.
func TestCrowdWithoutTheDead(t *testing.T) {
	s, first, _ := newCrowd(t, nil)
	for range 2 {
		first.next(t)
	}
	s.post(enveloped("3", "some/method", ""))
	first.next(t)
	s.process()
	await(t, "the second process to be known", func() bool { return s.endpoint.others() == 1 })
	other := s.endpoint.crowd.all()[0]
	other.mu.Lock()
	other.EndLocked(errors.New("it has just ended")) // and is being closed
	other.mu.Unlock()
	call := s.post(enveloped("4", "some/method", ""))
	go func() { first.answer(<-first.sent, `"result":{}`) }()
	call.want(200)
}

// Another process is started while the first ends. It gets the subscriptions of the next.
func TestCrowdStartOutlivesTheFirst(t *testing.T) {
	release := make(chan struct{})
	var starts atomic.Int32
	s, first, _ := newCrowd(t, func(o *Options) {
		acquire := o.Acquire
		o.Acquire = func(ctx context.Context) (mux.Server, error) {
			if starts.Add(1) == 2 {
				<-release
			}
			return acquire(ctx)
		}
	})
	s.post(enveloped("3", "some/method", ""))
	await(t, "the other start", func() bool {
		s.endpoint.crowd.mu.Lock()
		defer s.endpoint.crowd.mu.Unlock()
		return s.endpoint.crowd.starting
	})
	for range 3 {
		first.next(t)
	}
	first.end(errClosedByTest)
	await(t, "the end of the first", func() bool { return len(s.endpoint.process.all()) == 0 })
	call := s.post(enveloped(`9`, methodListen, listen))
	next := s.process()
	request := s.wantUpstream(next, allKinds)
	next.emit(news(acknowledged, request, `"notifications":{`+allKinds+`},`))
	s.wantTold(call, `9`, `"toolsListChanged":true`)
	close(release)
	other := s.process()
	await(t, "the other process to be known", func() bool { return s.endpoint.others() == 1 })
	s.wantUpstream(other, allKinds)
}

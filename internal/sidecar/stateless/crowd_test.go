package stateless

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

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
	s, first, calls := newCrowd(t, func(o *Options) { o.Limits.IdleTimeout = 100 * time.Millisecond })
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
	<-second.closed
	await(t, "the second process to be forgotten", func() bool { return s.endpoint.others() == 0 })
	first.answer(request, `"result":{}`)
	again.want(200)
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
		o.Acquire = func(ctx context.Context) (Server, error) {
			if started.Add(1) > 1 {
				return nil, errors.New("no room")
			}
			return acquire(ctx)
		}
	})
	for i := range 4 {
		calls = append(calls, s.post(enveloped("1", "some/method", "")))
		await(t, "the call to be there", func() bool { return s.endpoint.inFlight() == 3+i })
	}
	for range calls {
		first.answer(first.next(t), `"result":{}`)
	}
	for _, call := range calls {
		call.want(200)
	}
	await(t, "the start to fail", func() bool { return started.Load() == 2 })
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

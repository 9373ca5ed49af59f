package sessionless

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// newPool has a server with two processes at most, and two calls in flight at the first, so
// that it is busy.
func newPool(t *testing.T, change func(*Options)) (s *stage, first *script, calls []*posted) {
	t.Helper()
	s = newStage(t, func(o *Options) {
		o.Limits.TargetCalls, o.Limits.Processes = 2, 2
		if change != nil {
			change(o)
		}
	}, nil)
	for range 2 {
		calls = append(calls, s.post(enveloped("1", "some/method", "")))
		if first == nil {
			first = s.process()
		}
		await(t, "the call to be there", func() bool { return s.server.inFlight() == len(calls) })
	}
	return s, first, calls
}

func (s *Server) inFlight() int {
	running, err := s.first(context.Background())
	if err != nil {
		return 0
	}
	return running.load()
}

func (s *Server) others() int {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return len(s.pool.others)
}

// A request that finds the process busy does not wait for another one, but those after it
// find one. It ends when it is idle, and requests go to the first again.
func TestPool(t *testing.T) {
	s, first, calls := newPool(t, nil)
	late := s.post(enveloped("3", "some/method", ""))
	second := s.process()
	await(t, "the second process to be known", func() bool { return s.server.others() == 1 })
	other := s.post(enveloped("4", "some/method", ""))
	second.Answer(second.Next(t), `"result":{"by":"second"}`)
	other.want(`"id":4`, `"by":"second"`)
	for range 3 {
		first.Answer(first.Next(t), `"result":{"by":"first"}`)
	}
	for _, call := range append(calls, late) {
		call.want(`"by":"first"`)
	}
	again := s.post(enveloped("5", "some/method", ""))
	request := first.Next(t) // which is not busy any more
	await(t, "the second process to have no calls", func() bool {
		return s.server.pool.all()[0].load() == 0
	})
	s.server.pool.all()[0].idleNow(t)
	<-second.Closed
	await(t, "the second process to be forgotten", func() bool { return s.server.others() == 0 })
	first.Answer(request, `"result":{}`)
	again.want()
}

// idleNow lets the time pass after which a process ends that has nothing to do. The time
// itself is TestIdle's.
func (p *process) idleNow(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.idle.Reset(0) {
		t.Error("the process would never end")
	}
}

// N-06: a client gets the changes that it subscribed to from every process, and the adapter
// cancels the subscription at each process when no client is subscribed any more.
func TestPoolListens(t *testing.T) {
	s, first, _ := newPool(t, nil)
	for range 2 {
		first.Next(t)
	}
	early, upstream := s.open(first, `"early"`)
	s.post(enveloped("3", "some/method", ""))
	second := s.process()
	mirrored := s.wantUpstream(second, allKinds)
	second.Emit(changed(acknowledged, mirrored, `"notifications":{`+allKinds+`},`))
	late := s.post(enveloped(`"late"`, methodListen, `"notifications":{"promptsListChanged":true},`))
	s.wantTold(late, `"late"`, `"promptsListChanged":true`)

	await(t, "the client to listen at both", func() bool { return s.server.mirrors() == 2 })
	second.Emit(changed(toolsChanged, mirrored, ""))
	second.Emit(changed("notifications/prompts/list_changed", mirrored, ""))
	first.Emit(changed(toolsChanged, upstream, ""))
	s.equal("early, of the second", early.event(), changedFor(toolsChanged, `"early"`, ""))
	s.equal("early, of the first", early.event(), changedFor(toolsChanged, `"early"`, ""))
	s.equal("late, of the second", late.event(), changedFor("notifications/prompts/list_changed", `"late"`, ""))

	early.leave()
	late.leave()
	s.wantCancelled(second, mirrored)
}

// Only the first process ends the subscription of a client. The end of one at another process
// says nothing about it.
func TestPoolMirrorEnds(t *testing.T) {
	s, first, _ := newPool(t, nil)
	for range 2 {
		first.Next(t)
	}
	early, upstream := s.open(first, `"early"`)
	s.post(enveloped("3", "some/method", ""))
	first.Next(t)
	second := s.process()
	mirrored := s.wantUpstream(second, allKinds)
	second.Emit(changed(acknowledged, mirrored, `"notifications":{`+allKinds+`},`))
	second.Answer(mirrored, `"result":{}`)
	await(t, "the end of the mirror", func() bool { return s.server.mirrors() == 0 })
	first.Emit(changed(toolsChanged, upstream, ""))
	s.equal("after that", early.event(), changedFor(toolsChanged, `"early"`, ""))
}

// mirrors is how many subscriptions there are at other processes.
func (s *Server) mirrors() (sum int) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	for _, other := range s.pool.others {
		other.mu.Lock()
		sum += len(other.subscriptions.subscribers)
		other.mu.Unlock()
	}
	return sum
}

// If no process can start, the pool does not try again with every request.
func TestPoolWithoutRoom(t *testing.T) {
	var started atomic.Int32
	s, first, calls := newPool(t, func(o *Options) {
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
		await(t, "the call to be there", func() bool { return s.server.inFlight() == 3+i })
		if i > 0 {
			continue
		}
		await(t, "the start to fail", func() bool {
			s.server.pool.mu.Lock()
			defer s.server.pool.mu.Unlock()
			failed := s.server.pool.backOff.Wait() > 0
			if failed { // the next requests come before the next start, also on a slow machine
				s.server.pool.backOff.Failed(errNoRoom, mux.Pace{First: time.Hour, Last: time.Hour})
			}
			return failed
		})
	}
	for range calls {
		first.Answer(first.Next(t), `"result":{}`)
	}
	for _, call := range calls {
		call.want()
	}
	if got := started.Load(); got != 2 {
		t.Errorf("%d processes were asked for, want 2", got)
	}
}

// A drain waits for calls at every process.
func TestPoolDrains(t *testing.T) {
	s, first, calls := newPool(t, nil)
	calls = append(calls, s.post(enveloped("3", "some/method", "")))
	second := s.process()
	await(t, "the second process to be known", func() bool { return s.server.others() == 1 })
	calls = append(calls, s.post(enveloped("4", "some/method", "")))
	requests := []session.Message{first.Next(t), first.Next(t), first.Next(t)}
	last := second.Next(t)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.server.Drain(t.Context())
	}()
	for _, request := range requests {
		first.Answer(request, `"result":{}`)
	}
	<-first.Closed
	select {
	case <-drained:
		t.Error("the drain did not wait for a call")
	default:
	}
	second.Answer(last, `"result":{}`)
	<-second.Closed
	<-drained
	for _, call := range calls {
		call.want("result")
	}
}

// A subscription outlives many other processes. Each of them gets it.
func TestPoolMirrorsAgain(t *testing.T) {
	s, first, _ := newPool(t, func(o *Options) { o.Limits.Calls = 100 })
	for range 2 {
		first.Next(t)
	}
	s.open(first, `"early"`)
	for range 5 {
		s.post(enveloped("3", "some/method", ""))
		second := s.process()
		s.wantUpstream(second, allKinds)
		await(t, "it to be known", func() bool { return s.server.others() == 1 })
		s.server.pool.all()[0].idleNow(t)
		<-second.Closed
		await(t, "it to be forgotten", func() bool { return s.server.others() == 0 })
	}
}

// Only the process that has started a task, or a call that has asked for input, can continue
// it.
func TestPoolContinues(t *testing.T) {
	for name, params := range map[string][2]string{
		"task":  {"tasks/get", `"taskId":"t1",`},
		"round": {"tools/call", `"name":"x","requestState":"of the second","inputResponses":{},`},
	} {
		t.Run(name, func(t *testing.T) {
			s, first, calls := newPool(t, nil)
			calls = append(calls, s.post(enveloped("3", "some/method", "")))
			second := s.process()
			await(t, "the second process to be known", func() bool { return s.server.others() == 1 })
			started := s.post(enveloped("4", "tools/call", `"name":"x",`))
			second.Answer(second.Next(t), `"result":{"resultType":"task","task":{"taskId":"t1","status":"working"},"requestState":"of the second"}`)
			started.want()
			for _, call := range calls { // so that the first is not busy any more
				first.Answer(first.Next(t), `"result":{}`)
				_ = call
			}
			for _, call := range calls {
				call.want()
			}
			s.post(enveloped("5", params[0], params[1]))
			select {
			case request := <-first.Sent:
				t.Errorf("a process that never saw it is asked: %s", request.Bytes)
			case <-second.Sent:
			}
		})
	}
}

// A process that has ended, or that gets no more requests because it hangs, takes no requests
// while others can.
func TestPoolWithoutTheDead(t *testing.T) {
	for name, disable := range map[string]func(*process){
		"ended":   func(p *process) { p.EndLocked(errors.New("it has just ended")) }, // and is being closed
		"retired": func(p *process) { p.retired = true },
	} {
		t.Run(name, func(t *testing.T) {
			s, first, _ := newPool(t, nil)
			for range 2 {
				first.Next(t)
			}
			s.post(enveloped("3", "some/method", ""))
			first.Next(t)
			s.process()
			await(t, "the second process to be known", func() bool { return s.server.others() == 1 })
			other := s.server.pool.all()[0]
			other.mu.Lock()
			disable(other)
			other.mu.Unlock()
			call := s.post(enveloped("4", "some/method", ""))
			go func() { first.Answer(<-first.Sent, `"result":{}`) }()
			call.want()
		})
	}
}

// Another process is started while the first ends. It gets the subscriptions of the next.
func TestPoolStartOutlivesTheFirst(t *testing.T) {
	release := make(chan struct{})
	var starts atomic.Int32
	s, first, _ := newPool(t, func(o *Options) {
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
		s.server.pool.mu.Lock()
		defer s.server.pool.mu.Unlock()
		return s.server.pool.starting
	})
	for range 3 {
		first.Next(t)
	}
	first.End(errDied)
	await(t, "the end of the first", func() bool { return !s.isRunning() })
	call := s.post(enveloped(`9`, methodListen, listen))
	next := s.process()
	request := s.wantUpstream(next, allKinds)
	next.Emit(changed(acknowledged, request, `"notifications":{`+allKinds+`},`))
	s.wantTold(call, `9`, `"toolsListChanged":true`)
	close(release)
	other := s.process()
	await(t, "the other process to be known", func() bool { return s.server.others() == 1 })
	s.wantUpstream(other, allKinds)
}

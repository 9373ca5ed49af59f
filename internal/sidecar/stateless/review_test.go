package stateless

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// What a client says it can do must not be kept at its full length.
func TestReviewToolListsKeepCapabilities(t *testing.T) {
	s := newStage(t, func(o *Options) {
		o.Era, o.Limits.SendingBytes = Legacy, 64<<20
		o.Translate = func() Server {
			return newScript(map[string]string{"tools/list": noTools, "tools/call": `"result":{}`})
		}
	}, nil)
	const each = 1 << 20
	for i := range 32 {
		body := enveloped("1", "tools/call", `"name":"x",`)
		body = strings.Replace(body, `clientCapabilities":{`, `clientCapabilities":{"x`+strconv.Itoa(i)+`":"`+strings.Repeat("x", each)+`"`, 1)
		s.post(body).want(200)
	}
	kept := 0
	running := s.endpoint.process.all()[0]
	for key := range running.tools.byWhom {
		kept += len(key)
	}
	if kept > 1<<20 {
		t.Errorf("%d MiB of what clients said are kept when nobody is there", kept>>20)
	}
}

// A subscription that the server refuses must not end those of others.
func TestReviewRefusedListenEndsOthers(t *testing.T) {
	s := newStage(t, nil, nil)
	first, upstream := s.open(nil, `9`)
	p := s.process()
	bad := s.post(enveloped("1", methodListen, `"notifications":{"resourceSubscriptions":["not a URI"]},`))
	s.wantCancelled(p, upstream)
	p.answer(p.next(t), `"error":{"code":-32602,"message":"invalid URI"}`)
	bad.want(200, "-32602")
	got := make(chan string, 1)
	go func() { got <- first.event() }()
	select {
	case text := <-got:
		t.Errorf("somebody else's subscription is over: %s", text)
	case request := <-p.sent:
		t.Logf("asked again: %s", request.Bytes)
		first.leave()
	}
}

// Names of resources are kept for every client that listens, and sent to the server all
// at once.
func TestReviewLongNames(t *testing.T) {
	s := newStage(t, func(o *Options) { o.Limits.Listens, o.Limits.SendingBytes = 1024, 8<<20 }, nil)
	var p *script
	most := 0
	for i := range 8 {
		uri := strconv.Itoa(i) + strings.Repeat("x", 4<<20-4096)
		s.post(enveloped(strconv.Itoa(i), methodListen, `"notifications":{"resourceSubscriptions":["`+uri+`"]},`))
		if p == nil {
			p = s.process()
		}
		for { // until the server has agreed
			request := p.next(t)
			if string(request.Envelope.Method) == methodListen {
				most = max(most, len(request.Bytes))
				f, _ := filterOf(request)
				p.emit(news(acknowledged, request, `"notifications":`+f.text()+`,`))
				break
			}
		}
	}
	if most > 8<<20 {
		t.Errorf("the server is sent one message of %d MiB, and the names are kept for each client", most>>20)
	}
}

// A subscription outlives many other processes, and must not keep them.
func TestReviewSubscriptionKeepsDeadProcesses(t *testing.T) {
	s, first, _ := newCrowd(t, func(o *Options) { o.Limits.IdleTimeout, o.Limits.Calls = 20*time.Millisecond, 100 })
	for range 2 {
		first.next(t)
	}
	s.open(first, `"early"`)
	for range 5 {
		s.post(enveloped("3", "some/method", ""))
		second := s.process()
		<-second.closed // nobody needs it
		await(t, "it to be forgotten", func() bool { return s.endpoint.others() == 0 })
		s.endpoint.crowd.mu.Lock()
		s.endpoint.crowd.retryAt = time.Time{}
		s.endpoint.crowd.mu.Unlock()
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
func TestReviewCrowdLosesTasksAndRounds(t *testing.T) {
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

// A process with a task that runs is not one that nobody needs.
func TestReviewIdleEndsTasks(t *testing.T) {
	s := newStage(t, func(o *Options) { o.Limits.IdleTimeout = 50 * time.Millisecond }, nil)
	call := s.post(enveloped("1", "tools/call", `"name":"x",`))
	p := s.process()
	p.answer(p.next(t), `"result":{"resultType":"task","task":{"taskId":"t1","status":"working","ttl":3600000,"pollInterval":1000}}`)
	call.want(200)
	select {
	case <-p.closed:
		t.Error("the process was ended with a task that is working, before the client was to ask for it")
	case <-time.After(time.Second):
	}
}

// A process that has ended takes no requests while others can.
func TestReviewCrowdChoosesTheDead(t *testing.T) {
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
	other.dead = errors.New("it has just ended") // and is being closed
	other.mu.Unlock()
	call := s.post(enveloped("4", "some/method", ""))
	go func() { first.answer(<-first.sent, `"result":{}`) }()
	call.want(200)
	other.mu.Lock()
	other.dead = nil
	other.mu.Unlock()
}

// Another process is started while the first ends. It gets the subscriptions of the next.
func TestReviewCrowdStartOutlivesTheFirst(t *testing.T) {
	release := make(chan struct{})
	var starts atomic.Int32
	s, first, _ := newCrowd(t, func(o *Options) {
		acquire := o.Acquire
		o.Acquire = func(ctx context.Context) (Server, error) {
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
	select {
	case <-other.sent:
	case <-time.After(time.Second):
		t.Error("the other process is not asked for news")
	}
}

// A process that does not read is replaced at some time.
func TestReviewUnreadingProcessIsNeverReplaced(t *testing.T) {
	started := 0
	s := newStage(t, func(o *Options) {
		acquire := o.Acquire
		o.Acquire = func(ctx context.Context) (Server, error) {
			started++
			server, err := acquire(ctx)
			return unreading{server}, err
		}
		o.Era = Modern
	}, nil)
	for range 50 {
		s.post(enveloped("1", "some/method", "")).want(503)
	}
	if started == 1 {
		t.Error("50 requests in a row were refused because of one process that does not read")
	}
}

type unreading struct{ Server }

func (unreading) Send(context.Context, []byte) error { return os.ErrDeadlineExceeded }

// A process that hangs is replaced at some time.
func TestReviewHangingProcessIsNeverReplaced(t *testing.T) {
	s := newStage(t, func(o *Options) { o.Limits.CallTimeout = time.Millisecond }, nil)
	for range 50 {
		s.post(enveloped("1", "some/method", "")).want(200, "took longer")
	}
	if len(s.started) == 1 {
		t.Error("50 calls in a row timed out at one process, which has not said anything")
	}
}

// A call that is parked can only end in this instance, so a drain lets it.
func TestReviewDrainRefusesRetries(t *testing.T) {
	s := newStage(t, func(o *Options) {
		o.Era = Legacy
		o.Translate = func() Server {
			return newScript(map[string]string{"tools/list": noTools, "tools/call": `"result":{"resultType":"input_required","inputRequests":{},"requestState":"x"}`})
		}
	}, nil)
	s.post(enveloped("1", "tools/call", `"name":"x",`)).want(200, "input_required")
	s.endpoint.Refuse()
	s.post(enveloped("2", "tools/call", `"name":"x","requestState":"x",`)).want(200)
}

// Whoever subscribes to much must not hold up everybody at each change of subscriptions.
func TestReviewManySubscriptionsHoldUpEverybody(t *testing.T) {
	r := &run{options: &Options{}, open: map[*call]struct{}{}}
	uris := map[string]struct{}{}
	for i := range subscribedURIs {
		uris["a://"+strconv.Itoa(i)] = struct{}{}
	}
	r.hub.listeners = map[*call]*listener{}
	r.hub.upstream, r.hub.wanted, r.hub.agreed = &call{}, filter{uris: uris}, &filter{uris: uris}
	for range 1023 {
		r.hub.listeners[&call{run: r}] = &listener{filter: filter{uris: uris}, told: true}
	}
	begun := time.Now()
	r.mu.Lock()
	c := &call{run: r, wake: make(chan struct{}, 1)}
	r.listenLocked(c, filter{uris: map[string]struct{}{}})
	r.mu.Unlock()
	if took := time.Since(begun); took > 50*time.Millisecond {
		t.Errorf("nothing goes to or from the process for %s because one client more listens", took)
	}
}

package sessionless

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
	"github.com/slipway-mcp/slipway/test/hang"
)

// told is an Observer that a test reads.
type told chan string

func (o told) Changed(of int, method, uri string) { o <- strconv.Itoa(of) + " " + method + " " + uri }
func (o told) Missed(of int)                      { o <- strconv.Itoa(of) + " missed" }
func (o told) Ended()                             { o <- "ended" }

// wants checks what the other pod hears of next.
func (o told) wants(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-o:
		if got != want {
			t.Errorf("the other pod hears of %s, want %s", got, want)
		}
	case <-time.After(hang.Guard):
		t.Fatalf("the other pod hears of nothing, want %s", want)
	}
}

// observe has another pod observe the processes.
func (s *stage) observe(o told, wants ...subscription.Want) (running []bool, stop func()) {
	s.Helper()
	running, stop, err := s.server.hub.observe(context.Background(), wants, o)
	if err != nil {
		s.Error(err) // not Fatal: tests also call it from goroutines of their own
	}
	return running, stop
}

var listsAnd = func(uris ...string) subscription.Filter {
	return subscription.Filter{Lists: subscription.All(), URIs: uris}
}

// What another pod tells reaches the clients that want it, in their own words, once they know that they are subscribed.
func TestTold(t *testing.T) {
	s := newStage(t, nil, nil)
	hub := s.server.hub
	one := s.post(enveloped(`"one"`, methodListen, `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a://x"]},`))
	p := s.process()
	upstream := s.wantUpstream(p, allKinds+`,"resourceSubscriptions":["a://x"]`)
	hub.tell("", func(f subscription.Filter) subscription.Filter { return f }) // too early
	_, more := hub.wanted()
	p.Emit(changed(acknowledged, upstream, `"notifications":{`+allKinds+`,"resourceSubscriptions":["a://x"]},`))
	<-more
	s.wantTold(one, `"one"`, `"toolsListChanged":true,"resourceSubscriptions":["a://x"]`)
	if wants, _ := hub.wanted(); len(wants) != 1 || wants[0].String() != `{"toolsListChanged":true,"resourceSubscriptions":["a://x"]}` {
		t.Errorf("wanted are %+v", wants)
	}
	principals := &Principals{common: ownServer{Server: s.server}}
	principals.Tell("user x", listsAnd("a://x"))
	principals.Tell("", subscription.Filter{Lists: subscription.All(), URIs: []string{"a://x/part", "a://xy"}})
	tag := `"_meta":{"io.modelcontextprotocol/subscriptionId":"one"}`
	s.equal("a list", one.event(), `{"jsonrpc":"2.0","method":"`+toolsChanged+`","params":{`+tag+`}}`)
	s.equal("a part", one.event(), `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a://x/part",`+tag+`}}`)
	principals.TellMissed("", subscription.Filter{URIs: []string{"a://x", "a://y"}})
	s.equal("missed", one.event(), `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a://x",`+tag+`}}`)
	_, more = hub.wanted()
	one.leave()
	<-more
	if wants, _ := hub.wanted(); len(wants) > 0 {
		t.Errorf("wanted are %+v, and there is no client", wants)
	}
}

// Another pod hears of the changes of processes that run, and of those that start later, and has none start. A process needs
// not stay for it.
func TestObserved(t *testing.T) {
	s := newStage(t, nil, nil)
	hears := make(told, 16)
	running, _ := s.observe(hears, subscription.Want{Filter: listsAnd("a://x")}, subscription.Want{Principal: "user x", Filter: listsAnd("a://x")})
	if running[0] || running[1] || s.isRunning() {
		t.Error("a process runs")
	}
	upstream := s.listenBeside()
	p := s.process()
	p.Emit(changed("notifications/resources/updated", upstream, `"uri":"a://x/1",`))
	p.Emit(changed("notifications/resources/updated", upstream, `"uri":"a://y",`)) // not wanted
	p.Emit(changed(toolsChanged, upstream, ""))
	for _, want := range []string{"0 missed", "0 notifications/resources/updated a://x/1", "0 " + toolsChanged + " "} {
		if got := <-hears; got != want {
			t.Errorf("the other pod hears of %s, want %s", got, want)
		}
	}
	if current := s.server.current(); current.neededBy() {
		t.Error("the process stays for another pod")
	}
	// The resources of a second pod take another subscription, during which the first one may miss something.
	settled := make(chan []bool)
	go func() {
		running, _ := s.observe(make(told, 16), subscription.Want{Filter: listsAnd("a://z")})
		settled <- running
	}()
	s.wantCancelled(p, upstream)
	p.Answer(upstream, `"result":{"resultType":"complete"}`)
	upstream = s.wantUpstream(p, allKinds+`,"resourceSubscriptions":["a://x","a://z"]`)
	select {
	case <-settled:
		t.Error("the process is observed before it has agreed")
	default:
	}
	p.Emit(changed(acknowledged, upstream, `"notifications":{`+allKinds+`,"resourceSubscriptions":["a://x","a://z"]},`))
	if running := <-settled; !running[0] {
		t.Error("no process runs")
	}
	if got := <-hears; got != "0 missed" {
		t.Errorf("the other pod hears of %s", got)
	}
	s.server.hub.refuse()
	if got := <-hears; got != "ended" {
		t.Errorf("the other pod hears of %s", got)
	}
	if _, _, err := s.server.hub.observe(context.Background(), nil, hears); err == nil {
		t.Error("a pod that is about to end is observed")
	}
}

// listenBeside starts a process by a request of a client, and has it agree to the subscription of another pod.
func (s *stage) listenBeside() (upstream session.Message) {
	s.Helper()
	call := s.post(enveloped("1", "some/method", ""))
	p := s.process()
	s.started <- p
	for answered := false; !answered || upstream.Bytes == nil; {
		switch next := p.Next(s.T); string(next.Envelope.Method) {
		case methodListen:
			p.Emit(changed(acknowledged, next, `"notifications":{`+allKinds+`,"resourceSubscriptions":["a://x"]},`))
			upstream = next
		default:
			p.Answer(next, `"result":{}`)
			call.want("result")
			answered = true
		}
	}
	return upstream
}

func (p *process) neededBy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.neededLocked()
}

// The resources of other pods take no room from those of clients here, and are bounded, too.
func TestObservedResourcesAreBounded(t *testing.T) {
	s := newStage(t, nil, nil)
	s.open(nil, "1")
	p := s.server.current()
	var much []string
	for i := range maxURIs {
		much = append(much, "a://"+strconv.Itoa(i))
	}
	slices.Sort(much)
	one := &foreign{Want: subscription.Want{Filter: listsAnd(much...)}}
	other := &foreign{Want: subscription.Want{Filter: listsAnd("b://1")}}
	p.addForeign(one, false)
	p.addForeign(other, false)
	p.mu.Lock()
	defer p.mu.Unlock()
	if uris := p.subscriptions.foreign[other].filter.URIs; len(uris) > 0 || p.subscriptions.uris.areTooMany() || p.subscriptions.foreignURIs.areTooMany() {
		t.Errorf("%v are subscribed to beyond what may be", uris)
	}
	if uris := p.subscriptions.foreign[one].filter.URIs; len(uris) != maxURIs {
		t.Errorf("%d are subscribed to", len(uris))
	}
}

// The next process knows nothing of what the one before did, and a request may have changed something before either has agreed
// to the subscription.
func TestObservedProcessReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil, nil)
		hears := make(told, 16)
		s.observe(hears, subscription.Want{Filter: listsAnd("a://x")})
		for range 2 {
			upstream := s.listenBeside()
			p := s.process()
			hears.wants(t, "0 missed")
			p.Emit(changed("notifications/resources/updated", upstream, `"uri":"a://x",`))
			hears.wants(t, "0 notifications/resources/updated a://x")
			p.End(errDied)
			await(t, "the process is gone", func() bool { return !s.isRunning() })
		}
	})
}

// A process that does not take the subscription of another pod, or ends it, is asked again, more seldom with time. The other pod waits for the first
// attempt, and hears that everything may have changed after a later one.
func TestObservedProcessDoesNotAgree(t *testing.T) {
	const wanted = allKinds + `,"resourceSubscriptions":["a://x"]`
	agree := func(p *script, upstream session.Message) {
		p.Emit(changed(acknowledged, upstream, `"notifications":{`+wanted+`},`))
	}
	for name, test := range map[string]struct {
		fail  func(s *stage, p *script, upstream session.Message)
		after []time.Duration // until the next attempts
	}{
		"an error": {func(_ *stage, p *script, upstream session.Message) {
			p.Answer(upstream, `"error":{"code":-32603,"message":"busy just now"}`)
		}, []time.Duration{30 * time.Second, time.Minute}},
		"no answer": {func(s *stage, p *script, upstream session.Message) {
			s.wantCancelled(p, upstream)
		}, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}},
		"the end": {func(_ *stage, p *script, upstream session.Message) {
			agree(p, upstream)
			p.Answer(upstream, `"result":{"resultType":"complete"}`)
		}, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, nil, nil)
				call := s.post(enveloped("1", "some/method", ""))
				p := s.process()
				p.Answer(p.Next(t), `"result":{}`)
				call.want("result")
				hears, settled := make(told, 16), make(chan []bool, 1)
				go func() {
					running, _ := s.observe(hears, subscription.Want{Filter: listsAnd("a://x")}, subscription.Want{Principal: "user x", Filter: listsAnd("a://x")})
					settled <- running
				}()
				for i, after := range test.after {
					test.fail(s, p, s.wantUpstream(p, wanted))
					if i == 0 && !(<-settled)[0] {
						t.Error("no process runs")
					} else if i > 0 && name == "the end" {
						hears.wants(t, "0 missed")
					}
					begin := time.Now()
					upstream := s.wantUpstream(p, wanted)
					if waited := time.Since(begin).Round(time.Second / 2); waited != after {
						t.Errorf("attempt %d comes after %s, want %s", i+1, waited, after)
					}
					p.Sent <- upstream // for the next one
				}
				upstream := s.wantUpstream(p, wanted)
				agree(p, upstream)
				hears.wants(t, "0 missed")
				p.Emit(changed(toolsChanged, upstream, ""))
				hears.wants(t, "0 "+toolsChanged+" ")
			})
		})
	}
}

// A subscription of another pod that the process refuses does not end those of clients here.
func TestObservedProcessRefusesOnlyOtherPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil, nil)
		client, upstream := s.open(nil, "9")
		p := s.process()
		hears := make(told, 16)
		go s.observe(hears, subscription.Want{Filter: listsAnd("not a URI")})
		for _, after := range []time.Duration{0, 30 * time.Second, time.Minute} {
			begin := time.Now()
			s.wantCancelled(p, upstream)
			if waited := time.Since(begin).Round(time.Second / 2); waited != after {
				t.Errorf("the next attempt comes after %s, want %s", waited, after)
			}
			p.Answer(s.wantUpstream(p, allKinds+`,"resourceSubscriptions":["not a URI"]`), `"error":{"code":-32602,"message":"invalid URI"}`)
			upstream = s.wantUpstream(p, allKinds)
			p.Emit(changed(acknowledged, upstream, `"notifications":{`+allKinds+`},`))
			s.equal("after the replacement", client.event(), mayHaveChanged("9"))
		}
		p.Emit(changed(toolsChanged, upstream, ""))
		s.equal("change after that", client.event(), changedFor(toolsChanged, "9", ""))
		if len(hears) > 0 {
			t.Errorf("the other pod hears of %s", <-hears)
		}
	})
}

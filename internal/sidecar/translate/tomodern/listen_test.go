package tomodern

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

func acknowledged(filter string) string {
	return `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":ID},"notifications":` + filter + `}}`
}

func change() string {
	return `{"jsonrpc":"2.0","method":"` + toolsChanged + `","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":ID}}}`
}

const (
	toolsChanged = "notifications/tools/list_changed"
	over         = `"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":ID}`
)

func (p *script) notify(method, params string) {
	if params != "" {
		params = `,"params":` + params
	}
	p.emit(`{"jsonrpc":"2.0","method":"` + method + `"` + params + `}`)
	synctest.Wait()
}

// agree has a process agree to subscriptions, and to their end.
func agree(p *script) {
	p.answers["resources/subscribe"], p.answers["resources/unsubscribe"] = `"result":{}`, `"result":{}`
}

// N-01, N-02, N-03: what is honored comes first, then nothing but what was asked for.
func TestListen(t *testing.T) {
	play(t, nil, agree, func(s *stage) {
		l := s.post(mute, "subscriptions/listen", `"notifications":{"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["a://y/","a://x","a://x"],"taskIds":["t"]},`)
		ack := acknowledged(`{"toolsListChanged":true,"resourceSubscriptions":["a://x","a://y/"]}`)
		l.want(ack)
		p := s.process(1)
		p.notify(toolsChanged, "")
		p.notify(toolsChanged, `{"x":1.0}`)
		p.notify(toolsChanged, `null`)
		p.notify(toolsChanged, `{"_meta":null}`)
		p.notify(toolsChanged, `{"_meta":{"a":1}}`)
		p.notify("notifications/prompts/list_changed", "")
		p.notify("notifications/resources/updated", `{"uri":"a://x"}`)
		p.notify("notifications/resources/updated", `{"uri":"a://y/z"}`)
		p.notify("notifications/resources/updated", `{"uri":"a://xx"}`)
		p.notify("notifications/elicitation/complete", `{"elicitationId":"e"}`)
		const id = `"io.modelcontextprotocol/subscriptionId":ID`
		l.want(ack, change(), `{"jsonrpc":"2.0","method":"`+toolsChanged+`","params":{"_meta":{`+id+`},"x":1.0}}`,
			change(), change(), `{"jsonrpc":"2.0","method":"`+toolsChanged+`","params":{"_meta":{`+id+`,"a":1}}}`,
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{`+id+`},"uri":"a://x"}}`,
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{`+id+`},"uri":"a://y/z"}}`)
		equal(t, "unrouted", s.server.Metrics().UnroutedMessages.Value(), 1)
		time.Sleep(time.Hour) // it keeps the process
		if p.isClosed() {
			t.Error("the process was ended")
		}
	})
}

// Servers discard notifications while there is no stream for them, so clients must not rely on a subscription before.
func TestListenAwaitsTheStream(t *testing.T) {
	for name, filter := range map[string]string{"lists": `"toolsListChanged":true`, "resources": `"resourceSubscriptions":["a://x"]`} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(p *script) { agree(p); p.stream = make(chan struct{}) }, func(s *stage) {
				first := s.post(mute, "subscriptions/listen", `"notifications":{`+filter+`},`)
				second := s.post(mute, "subscriptions/listen", `"notifications":{`+filter+`},`)
				first.want()
				second.want()
				close(s.process(1).stream)
				first.want(acknowledged(`{` + filter + `}`))
				second.want(acknowledged(`{` + filter + `}`))

				s.process(1).end(errPlayed) // another process takes over
				first.want(acknowledged(`{` + filter + `}`))
				close(s.process(2).stream)
				if got := first.got(); len(got) != 2 { // what may have changed meanwhile
					t.Errorf("got %s", got)
				}
			})
		})
	}
}

// N-02: what the server does not have is left out, and if that is all, it is over.
func TestListenToNothing(t *testing.T) {
	bare := func(p *script) {
		p.answers["initialize"] = `"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"resources":{"listChanged":true}},"serverInfo":{}}`
	}
	refusing := func(p *script) { p.answers["resources/subscribe"] = `"error":{"code":-32602,"message":"no"}` }
	for name, test := range map[string]struct {
		play   func(*script)
		filter string
		want   []string
	}{
		"some":          {bare, `{"toolsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["a:b"]}`, []string{acknowledged(`{"resourcesListChanged":true}`)}},
		"none":          {bare, `{"toolsListChanged":true}`, []string{acknowledged(`{}`), result(over)}},
		"nothing":       {nil, `{}`, []string{acknowledged(`{}`), result(over)}},
		"unknown":       {nil, `{"x":true}`, []string{acknowledged(`{}`), result(over)}},
		"refused":       {refusing, `{"resourceSubscriptions":["a:b"]}`, []string{acknowledged(`{}`), result(over)}},
		"refused a URI": {refusing, `{"toolsListChanged":true,"resourceSubscriptions":["a:b"]}`, []string{acknowledged(`{"toolsListChanged":true}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, test.play, func(s *stage) {
				l := s.post(mute, "subscriptions/listen", `"notifications":`+test.filter+`,`)
				l.want(test.want...)
				s.process(1).expectNothing()
			})
		})
	}
}

// A filter that cannot be read, or that parsers disagree on, is refused.
func TestListenUnreadable(t *testing.T) {
	for _, filter := range []string{`7`, `{"toolsListChanged":"x"}`, `{"resourceSubscriptions":["a:b",null]}`, `{"toolsListChanged":true,"toolsListChanged":false}`} {
		play(t, nil, agree, func(s *stage) {
			s.post(mute, "subscriptions/listen", `"notifications":`+filter+`,`).wantPart("-32602")
		})
	}
}

// A resource is subscribed to once, for as long as one client wants it, and in order.
func TestListenShared(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		subscribe := func(p *script) {
			p.answer(p.expect(`{"jsonrpc":"2.0","id":N,"method":"resources/subscribe","params":{"uri":"a:b"}}`), `"result":{}`)
		}
		const filter = `"notifications":{"resourceSubscriptions":["a:b"]},`
		ack := acknowledged(`{"resourceSubscriptions":["a:b"]}`)
		one, two := s.post(mute, "subscriptions/listen", filter), s.post(mute, "subscriptions/listen", filter)
		p := s.process(1)
		p.notify("notifications/resources/updated", `{"uri":"a:b"}`) // N-02: nothing comes first
		one.wantNothing()
		subscribe(p)
		p.expectNothing()
		one.want(ack)
		two.want(ack)
		other := s.post(client{principal: "other", capabilities: "{}"}, "subscriptions/listen", filter)
		subscribe(s.process(2))
		p.notify("notifications/resources/updated", `{"uri":"a:b"}`)
		updated := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":ID},"uri":"a:b"}}`
		one.want(ack, updated)
		two.want(ack, updated)
		other.want(ack)
		one.abandon()
		p.expectNothing()
		two.abandon()
		three := s.post(mute, "subscriptions/listen", filter)
		p.expect(`{"jsonrpc":"2.0","id":N,"method":"resources/unsubscribe","params":{"uri":"a:b"}}`)
		subscribe(p)
		three.want(ack)
		p.notify("notifications/resources/updated", `{"uri":"a:b"}`)
		one.want(ack, updated)
	})
}

// All listeners of a group get a notification of a change in any of its processes.
func TestListenAnyProcess(t *testing.T) {
	play(t, nil, agree, func(s *stage) {
		l := s.post(elicits, "subscriptions/listen", `"notifications":{"toolsListChanged":true},`)
		ack := acknowledged(`{"toolsListChanged":true}`)
		l.want(ack)
		s.post(elicits, "tools/call", "")
		s.post(elicits, "tools/call", "")
		s.process(2).notify(toolsChanged, "")
		l.want(ack, change())
	})
}

// B-04: another process takes over, and clients look again at all that they have.
func TestSubscriberEnds(t *testing.T) {
	play(t, nil, agree, func(s *stage) {
		l := s.post(mute, "subscriptions/listen", `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:b"]},`)
		ack := acknowledged(`{"toolsListChanged":true,"resourceSubscriptions":["a:b"]}`)
		l.want(ack)
		time.Sleep(time.Minute)
		s.process(1).end(errPlayed)
		updated := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b","_meta":{"io.modelcontextprotocol/subscriptionId":ID}}}`
		l.want(ack, change(), updated)
		s.process(2).notify(toolsChanged, "")
		l.want(ack, change(), updated, change())
		l.abandon()
		time.Sleep(6 * time.Minute)
		s.empty()
	})
}

// The process that takes over is subscribed to what clients have.
func TestSubscriberEndsResubscribes(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		l := s.post(mute, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["a:b"]},`)
		s.process(1).answer(s.process(1).next(), `"result":{}`)
		s.process(1).end(errPlayed)
		p := s.process(2)
		request := p.expect(`{"jsonrpc":"2.0","id":N,"method":"resources/subscribe","params":{"uri":"a:b"}}`)
		if n := len(l.got()); n != 1 {
			t.Errorf("got %d messages before the process has agreed", n)
		}
		p.answer(request, `"result":{}`)
		if n := len(l.got()); n != 2 {
			t.Errorf("got %d messages", n)
		}
		l.abandon()
		p.expect(`{"jsonrpc":"2.0","id":N,"method":"resources/unsubscribe","params":{"uri":"a:b"}}`)
	})
}

// A client that comes while the process is replaced may be the one that brings another:
// that one has the subscriptions of those who were there before, too.
func TestSubscriberReplacedByAListener(t *testing.T) {
	for range 300 { // since either may be first
		started := 0
		play(t, nil, func(p *script) {
			agree(p)
			if started++; started == 2 {
				delete(p.answers, "initialize")
				delete(p.answers, "resources/subscribe")
			}
		}, subscriberReplacedByAListener)
		if t.Failed() {
			return
		}
	}
}

func subscriberReplacedByAListener(s *stage) {
	first := s.post(mute, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["a:b"]},`)
	ack := acknowledged(`{"resourceSubscriptions":["a:b"]}`)
	first.want(ack)
	s.process(1).end(errPlayed)
	p := s.process(2)
	initialize := p.next()
	for range 20 { // who all wait for the same start
		s.post(mute, "subscriptions/listen", `"notifications":{"toolsListChanged":true},`)
	}
	p.answer(initialize, everything)
	p.answer(p.expect(`{"jsonrpc":"2.0","id":N,"method":"resources/subscribe","params":{"uri":"a:b"}}`), `"result":{}`)
	p.expectNothing()
	first.want(ack, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b","_meta":{"io.modelcontextprotocol/subscriptionId":ID}}}`)
}

// Clients are told after a time that does not depend on how many subscriptions there are.
func TestSubscriberTakesOverInTime(t *testing.T) {
	started := 0
	play(t, nil, func(p *script) {
		agree(p)
		if started++; started == 2 {
			p.answers["resources/subscribe"] = ""
		}
	}, func(s *stage) {
		l := s.post(mute, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["a:0","a:1","a:2","a:3"]},`)
		l.wantPart("acknowledged")
		s.process(1).end(errPlayed)
		s.process(2)
		time.Sleep(topicTimeout - time.Second)
		l.wantPart("acknowledged")
		time.Sleep(2 * time.Second)
		if n := len(l.got()); n != 1+4 {
			t.Errorf("got %d messages", n)
		}
	})
}

// A subscription is not left without a process if the one that was found has just ended.
func TestListenAtEndedProcess(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		s.post(mute, "tools/list", "")
		s.process(1).next()
		s.server.mu.Lock()
		var g *group
		for _, g = range s.server.groups {
		}
		w := g.processes[0]
		s.server.mu.Unlock()
		s.process(1).end(errPlayed)
		synctest.Wait()
		l := &listen{to: &answers{}, group: g, filter: subscription.Filter{Lists: subscription.Set{true}}}
		if _, err := s.server.enter(l, w); !errors.Is(err, errGone) {
			t.Errorf("got error %v", err)
		}
		if len(g.listens) != 0 {
			t.Error("it is entered")
		}
	})
}

// If none can take over, or none lasts, it is an error, and no result.
func TestSubscriberCannotBeReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		play func(n int, p *script)
		ends int
		want string
	}{
		"no start": {func(n int, p *script) {
			if n > 1 {
				p.answers["initialize"] = `"error":{"code":-32603,"message":"no"}`
			}
		}, 1, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"the subscription has ended: the server is busy: the server refused initialize: {\"code\":-32603,\"message\":\"no\"}"}}`},
		"one after the other ends": {func(int, *script) {}, 4, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"the subscription has ended: ` + errPlayed.Error() + `"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			play(t, nil, func(p *script) { n++; test.play(n, p) }, func(s *stage) {
				l := s.post(mute, "subscriptions/listen", `"notifications":{"toolsListChanged":true},`)
				want := []string{acknowledged(`{"toolsListChanged":true}`)}
				for i := range test.ends {
					s.process(i + 1).end(errPlayed)
					synctest.Wait()
					if i > 0 {
						want = append(want, change())
					}
				}
				l.want(append(want, test.want)...)
			})
		})
	}
}

// Subscriptions of earlier clients that failed do not count for later clients.
func TestFailedSubscribersDoNotCountLater(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		const filter = `"notifications":{"toolsListChanged":true},`
		first := s.post(mute, "subscriptions/listen", filter)
		for i := range mostShort {
			s.process(i + 1).end(errPlayed)
			synctest.Wait()
		}
		first.abandon()
		second := s.post(mute, "subscriptions/listen", filter)
		s.process(mostShort + 1).end(errPlayed)
		second.want(acknowledged(`{"toolsListChanged":true}`), change())
	})
}

// N-05: the end of a server is the result of its subscriptions.
func TestCloseEndsListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil, agree)
		l := s.post(mute, "subscriptions/listen", `"notifications":{"toolsListChanged":true},`)
		called := s.post(mute, "tools/call", "")
		s.process(1).next()
		s.server.Close()
		s.server.Close()
		l.want(acknowledged(`{"toolsListChanged":true}`), result(over))
		called.want(failure(-32603, "this instance is going away"))
		s.post(mute, "tools/call", "").wantBusy()
		s.empty()
	})
}

// A server without clients has nothing to end.
func TestCloseUnused(*testing.T) {
	New(Options{Limits: testLimits()}).Close()
}

func TestListenBounds(t *testing.T) {
	play(t, nil, agree, func(s *stage) {
		l := s.post(mute, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["a:0","a:1","a:2","a:3"]},`)
		l.wantPart("acknowledged")
		s.post(mute, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["b:b"]},`).wantBusy()
		s.post(mute, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["a:1"]},`).wantPart("acknowledged")
		l.abandon()
		s.post(mute, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["b:b"]},`).wantPart("acknowledged")
	})
}

// The names of resources may be so long in all, as they are sent. Those that are refused
// cost the process nothing.
func TestListenBytes(t *testing.T) {
	uris := func(n int, filler string) string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf(`"a:%d%s"`, i, strings.Repeat(filler, 1000))
		}
		return `"notifications":{"resourceSubscriptions":[` + strings.Join(names, ",") + `]},`
	}
	play(t, func(o *Options) { o.Limits.URIs = 2000 }, agree, func(s *stage) {
		call := s.post(mute, "tools/list", "")
		p := s.process(1)
		list := p.next()
		s.post(mute, "subscriptions/listen", uris(1300, "x")).wantBusy()
		s.post(mute, "subscriptions/listen", uris(250, `\u0001`)).wantBusy()
		l := s.post(mute, "subscriptions/listen", uris(250, "x"))
		l.wantPart("acknowledged")
		s.post(mute, "subscriptions/listen", strings.ReplaceAll(uris(20, "x"), "a:", "b:")).wantBusy()
		l.abandon()
		s.post(mute, "subscriptions/listen", strings.ReplaceAll(uris(20, "x"), "a:", "b:")).wantPart("acknowledged")
		p.answer(list, `"result":{}`)
		call.wantPart("complete")
	})
}

// What a process does not answer is not kept for as long as it is there.
func TestUnansweredOwnRequests(t *testing.T) {
	play(t, nil, func(p *script) {
		agree(p)
		p.answers["resources/unsubscribe"] = ""
	}, func(s *stage) {
		for range 50 {
			l := s.post(mute, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["a:b"]},`)
			l.wantPart("a:b")
			l.abandon()
		}
		pending := func() (n int) {
			s.server.mu.Lock()
			defer s.server.mu.Unlock()
			for _, g := range s.server.groups {
				for _, w := range g.processes {
					n += w.LenLocked()
				}
			}
			return n
		}
		if n := pending(); n != 50 {
			t.Errorf("%d requests are in flight", n)
		}
		time.Sleep(topicTimeout)
		synctest.Wait()
		if n := pending(); n != 0 {
			t.Errorf("%d requests are kept", n)
		}
	})
}

// A client that goes away before it was told leaves nothing behind.
func TestLeaveWhileSubscribing(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		l := s.post(mute, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["a:b"]},`)
		p := s.process(1)
		request := p.next()
		l.leave()
		<-l.done
		if l.err == nil || errors.Is(l.err, session.ErrEnded) {
			t.Errorf("got error %v", l.err)
		}
		p.answer(request, `"result":{}`)
		l.wantNothing()
		time.Sleep(6 * time.Minute)
		s.empty()
	})
}

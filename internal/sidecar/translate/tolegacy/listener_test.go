package tolegacy

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	// changing says that the server tells changes of two lists, and of resources.
	changing = `"result":{"capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"listChanged":true,"subscribe":true}}}`
	lists    = `"toolsListChanged":true,"resourcesListChanged":true`
	tools    = "notifications/tools/list_changed"
	updated  = "notifications/resources/updated"
	done     = `,"result":{}}`
)

func subscribing(id, method, uri string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"resources/` + method + `","params":{"uri":"` + uri + `"}}`
}

func listening(filter string) string {
	return `{"jsonrpc":"2.0","id":"slipway","method":"subscriptions/listen","params":{"notifications":` + filter + `,"_meta":{` + envelope(`{}`) + `}}}`
}

func update(uri string) string {
	return `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `"}}`
}

// B-05: an initialized client is told of every list that the server tells changes of, by no
// call, and without the tag of the subscription (N-03).
func TestListens(t *testing.T) {
	staged(t, func(s *stage) {
		s.meet(r11, `{}`, changing)
		s.wantIdle()
		s.send(initialized)
		x := s.next()
		s.equal("asked", x.request, listening(`{`+lists+`}`))
		x.agree(`{` + lists + `}`)
		s.want()
		x.announce(tools, "")
		x.announce(tools, `"x":1.0,`)
		x.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"a":1,"io.modelcontextprotocol/subscriptionId":"slipway"}}}`)
		x.announce("notifications/other", "")                // N-04
		x.announce("notifications/prompts/list_changed", "") // N-01: neither side was promised these
		x.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":null}}`)
		got := s.heardAll()
		want := []string{
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}`,
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"x":1.0}}`,
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"a":1}}}`,
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":null}}`,
		}
		if len(got) != len(want) {
			t.Fatalf("the client is told %d messages, want %d", len(got), len(want))
		}
		for i, message := range got {
			s.equal("announcement", string(message.Bytes), want[i])
			if !message.Unrelated {
				t.Error("the announcement belongs to a call")
			}
		}
		s.send(initialized) // once is enough
		s.wantIdle()
	})
	staged(t, func(s *stage) { // nothing to be told of
		s.meet(r11, `{}`, discovered)
		s.send(initialized)
		s.wantIdle()
	})
}

// B-05: a subscription of the client's replaces the one at the server, once that agrees.
func TestSubscribe(t *testing.T) {
	staged(t, func(s *stage) {
		s.meet(r11, `{}`, changing)
		s.send(initialized)
		first := s.next()
		first.agree(`{` + lists + `}`)
		synctest.Wait()

		s.send(subscribing("1", "subscribe", "a://x"))
		second := s.next()
		s.equal("asked", second.request, listening(`{`+lists+`,"resourceSubscriptions":["a://x"]}`))
		s.want()
		if first.cancelled() {
			t.Error("the old one ends before the new one is there")
		}
		first.announce(tools, "")
		second.agree(`{`+lists+`,"resourceSubscriptions":["a://x"]}`, announcement(tools, ""), announcement(updated, `"uri":"a://x",`)) // some of it twice
		s.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}`, update("a://x"), `{"jsonrpc":"2.0","id":1`+done)
		if !first.cancelled() {
			t.Error("the old one goes on")
		}
		second.announce(tools, "")
		s.wantIn([]string{tools})

		s.send(subscribing("2", "subscribe", "a://x")) // it is
		s.want(`{"jsonrpc":"2.0","id":2` + done)
		s.send(subscribing("3", "unsubscribe", "a://y")) // it is not
		s.want(`{"jsonrpc":"2.0","id":3` + done)
		s.wantIdle()

		s.send(subscribing("4", "subscribe", "a://not"))
		third := s.next()
		third.agree(`{` + lists + `,"resourceSubscriptions":["a://x"]}`)
		s.want(`{"jsonrpc":"2.0","id":4,"error":{"code":-32602,"message":"the server does not announce changes of this resource"}}`)
		third.announce(updated, `"uri":"a://x",`)
		s.want(update("a://x"))

		s.send(subscribing("5", "unsubscribe", "a://x"))
		fourth := s.next()
		s.equal("asked", fourth.request, listening(`{`+lists+`}`))
		fourth.agree(`{` + lists + `}`)
		s.want(`{"jsonrpc":"2.0","id":5` + done)
		if !second.cancelled() || !third.cancelled() || fourth.cancelled() {
			t.Error("not the last one alone is left")
		}
	})
}

// Changes that come while the server is asked are made together.
func TestSubscribeTogether(t *testing.T) {
	staged(t, func(s *stage) {
		s.meet(r06, `{}`, discovered)
		s.send(subscribing("1", "subscribe", "a://1"))
		first := s.next()
		s.send(subscribing("2", "subscribe", "a://2"))
		s.send(subscribing("3", "subscribe", "a://3"))
		s.send(subscribing("4", "unsubscribe", "a://1"))
		s.send(subscribing("5", "unsubscribe", "a://2"))
		s.send(subscribing("6", "subscribe", "a://2"))
		s.wantIdle()
		first.agree(`{"resourceSubscriptions":["a://1"]}`)
		second := s.next()
		s.equal("asked", second.request, listening(`{"resourceSubscriptions":["a://2"]}`))
		second.agree(`{"resourceSubscriptions":["a://2"]}`)
		s.want(`{"jsonrpc":"2.0","id":1`+done, `{"jsonrpc":"2.0","id":2`+done,
			`{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"a session may have 2 subscriptions"}}`,
			`{"jsonrpc":"2.0","id":4`+done, `{"jsonrpc":"2.0","id":5`+done, `{"jsonrpc":"2.0","id":6`+done)
		s.send(subscribing("7", "unsubscribe", "a://2")) // the last one
		s.want(`{"jsonrpc":"2.0","id":7` + done)
		s.wantIdle()
		if !second.cancelled() {
			t.Error("the server announces changes that no client wants")
		}
	})
}

// What the client takes back before the server was asked is granted.
func TestSubscribeTakenBack(t *testing.T) {
	staged(t, func(s *stage) {
		s.meet(r11, `{}`, discovered)
		s.send(subscribing("1", "subscribe", "a://1"))
		first := s.next()
		s.send(subscribing("2", "subscribe", "a://2"))
		s.send(subscribing("3", "unsubscribe", "a://2"))
		first.agree(`{"resourceSubscriptions":["a://1"]}`)
		s.want(`{"jsonrpc":"2.0","id":1`+done, `{"jsonrpc":"2.0","id":2`+done, `{"jsonrpc":"2.0","id":3`+done)
		s.wantIdle()
	})
}

// A subscription that the server does not make.
func TestSubscribeFails(t *testing.T) {
	for name, test := range map[string]struct {
		fails func(s *stage, x *scripted)
		want  []string
	}{
		"N-07 an error": {func(_ *stage, x *scripted) { x.answer(`"error":{"code":-32601,"message":"no such method"}`) }, []string{`"error":{"code":-32601,"message":"no such method"}`}},
		"another":       {func(_ *stage, x *scripted) { x.answer(`"error":{"code":-32603,"message":"busy"}`) }, []string{`"error":{"code":-32603,"message":"busy"}`}},
		"a result":      {func(_ *stage, x *scripted) { x.answer(`"result":{}`) }, []string{`-32603`, "ended the subscription"}},
		"silence":       {func(*stage, *scripted) { time.Sleep(testLimits().ListenTimeout) }, []string{`-32603`, "did not answer within 5s"}},
		"other words": {func(_ *stage, x *scripted) {
			x.announce(updated, `"uri":"a://y",`)
			time.Sleep(testLimits().ListenTimeout)
		}, []string{`-32603`, "did not answer within 5s"}},
	} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(s *stage) {
				s.meet(r11, `{}`, discovered)
				s.send(subscribing("1", "subscribe", "a://1"))
				old := s.next()
				old.agree(`{"resourceSubscriptions":["a://1"]}`)
				s.want(`{"jsonrpc":"2.0","id":1` + done)

				s.send(subscribing("2", "subscribe", "a://2"))
				test.fails(s, s.next())
				s.wantIn(append(test.want, `"id":2`))
				old.announce(updated, `"uri":"a://1",`) // as before
				s.want(update("a://1"))

				s.send(subscribing("3", "unsubscribe", "a://1"))
				s.want(`{"jsonrpc":"2.0","id":3` + done)
				if !old.cancelled() {
					t.Error("the server announces changes that no client wants")
				}
			})
		})
	}
	staged(t, func(s *stage) { // the server is not there
		s.meet(r11, `{}`, discovered)
		s.modern.refuse(errors.New("no process"))
		s.send(subscribing("1", "subscribe", "a://1"))
		s.wantIn([]string{`"id":1,"error":{"code":-32603`, "no process"})
		s.send(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe"}`)
		s.wantIn([]string{`"id":2,"error":{"code":-32602`})
		s.send(subscribing("3", "subscribe", strings.Repeat("u", nameBytes+1)))
		s.wantIn([]string{`"id":3,"error":{"code":-32602`, "8192 bytes"})
	})
}

// A resource that the client is not subscribed to any more is not told of, whether or not
// the server knows.
func TestUnsubscribeHolds(t *testing.T) {
	staged(t, func(s *stage) {
		s.meet(r11, `{}`, discovered)
		var old *scripted
		for _, uri := range []string{"a://1", "a://2/"} {
			s.send(subscribing("1", "subscribe", uri))
			old = s.next()
			old.agree(`{"resourceSubscriptions":["a://1","a://2/"]}`)
			s.want(`{"jsonrpc":"2.0","id":1` + done)
		}
		s.send(subscribing("2", "unsubscribe", "a://1"))
		s.next().answer(`"error":{"code":-32603,"message":"busy"}`)
		s.want(`{"jsonrpc":"2.0","id":2` + done)
		for _, uri := range []string{"a://1", "a://2/", "a://2/part", "a://2/#part", "a://20", "a://1/part"} {
			old.announce(updated, `"uri":"`+uri+`",`)
		}
		s.want(update("a://2/"), update("a://2/part"), update("a://2/#part"))
		time.Sleep(time.Hour)
		s.wantIdle() // until there is something else to change
	})
}

// A subscription that is lost is made again, with patience, and the client is told that
// things may have changed.
func TestListenIsLost(t *testing.T) {
	staged(t, func(s *stage) {
		s.meet(r11, `{}`, changing)
		s.send(subscribing("1", "subscribe", "a://x"))
		x := s.next()
		x.agree(`{` + lists + `,"resourceSubscriptions":["a://x"]}`)
		s.want(`{"jsonrpc":"2.0","id":1` + done)
		x.answer(`"error":{"code":-32603,"message":"the server's process ended"}`)
		s.want()
		for _, seconds := range []int{1, 2, 4, 8, 16, 30, 30} {
			time.Sleep(time.Duration(seconds)*time.Second - time.Millisecond)
			s.wantIdle()
			time.Sleep(time.Millisecond)
			s.next().answer(`"error":{"code":-32603,"message":"not yet"}`)
		}
		synctest.Wait()
		time.Sleep(30 * time.Second)
		x = s.next()
		x.agree(`{"toolsListChanged":true,"resourceSubscriptions":["a://x"]}`, announcement(tools, ""), announcement(updated, `"uri":"a://y",`)) // some of it twice
		s.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, update("a://x"), update("a://y"))
		time.Sleep(time.Hour)
		s.wantIdle()

		x.answer(`"result":{}`) // after a long time: patience is new
		synctest.Wait()
		time.Sleep(time.Second)
		s.next().answer(`"error":{"code":-32601,"message":"no such method"}`)
		synctest.Wait()
		time.Sleep(time.Hour)
		s.wantIdle() // N-07
		s.send(subscribing("2", "subscribe", "a://y"))
		s.next().agree(`{"resourceSubscriptions":["a://y"]}`)
		s.wantIn([]string{"a://x"}, []string{"a://y"}, []string{`"id":2` + done})
	})
}

// N-02: a server that honors nothing, or nothing that it was asked for, is left alone.
func TestNothingHonored(t *testing.T) {
	for _, honored := range []string{`{}`, `{"promptsListChanged":true,"resourceSubscriptions":["a://x"]}`, `{"toolsListChanged":"x"}`} {
		staged(t, func(s *stage) {
			s.meet(r11, `{}`, changing)
			s.send(initialized)
			x := s.next()
			x.agree(honored)
			synctest.Wait()
			if !x.cancelled() {
				t.Errorf("the subscription goes on, of which the server honors %s", honored)
			}
			s.send(initialized)
			time.Sleep(time.Hour)
			s.wantIdle()
		})
	}
}

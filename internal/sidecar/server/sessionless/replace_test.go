package sessionless

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// listening has a client listen at a process.
func listening(t *testing.T, r *process, notifications string) *Call {
	t.Helper()
	c, err := r.call(t.Context(), scanned(enveloped("1", subscription.MethodListen, `"notifications":{`+notifications+`},`)), true)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return c
}

// received are all messages that wait for a client.
func (c *Call) received() (messages []string) {
	for next, ok := c.Next(); ok; next, ok = c.Next() {
		messages = append(messages, string(next.Message))
	}
	return messages
}

func updated(uri string) string {
	return `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`
}

// While one subscription takes the place of another the process tells no changes. So clients
// that were subscribed before learn that everything may have changed, and no others do.
func TestReplacedSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newScripted(testLimits())
		one := listening(t, r, `"toolsListChanged":true,"resourceSubscriptions":["a://x","a://\"q\""]`)
		agree := func() {
			upstream := <-p.Sent
			filter, _, err := subscription.Parse(upstream.Bytes, upstream.Envelope.Params)
			if err != nil {
				t.Fatalf("the process is sent %s: %v", upstream.Bytes, err)
			}
			p.Emit(changed(acknowledged, upstream, `"notifications":`+filter.String()+`,`))
			synctest.Wait()
		}
		agree()
		if got := one.received(); len(got) != 1 || !strings.Contains(got[0], acknowledged) {
			t.Errorf("the first client gets %q", got)
		}
		two := listening(t, r, `"resourceSubscriptions":["a://y"]`)
		<-p.Sent // the end of the first subscription
		time.Sleep(cancelGrace)
		synctest.Wait()
		if got := slices.Concat(one.received(), two.received()); len(got) != 0 {
			t.Errorf("before there is a subscription clients get %q", got)
		}
		agree()
		got := one.received()
		slices.Sort(got)
		want := []string{
			updated(`a://\"q\"`), updated("a://x"),
			mayHaveChanged("1"),
		}
		if !slices.Equal(got, want) {
			t.Errorf("the first client gets\n     %q\nwant %q", got, want)
		}
		if got := two.received(); len(got) != 1 || !strings.Contains(got[0], acknowledged) {
			t.Errorf("the second client gets %q", got)
		}
		for _, c := range []*Call{one, two} {
			c.Release()
		}
		r.fail(errDied)
	})
}

// subscribable is a process that has one subscription at a time, as servers of the Go SDK do:
// the end of one ends all. It tells changes of one resource while it has one.
type subscribable struct {
	*script
	mu         sync.Mutex
	subscribed string // the id of the subscription, or empty
	lost       int    // changes so far that it did not tell of
}

func (s *subscribable) Send(ctx context.Context, sent session.Message) error {
	message := scanned(string(sent.Bytes))
	switch string(message.Envelope.Method) {
	case subscription.MethodListen:
		filter, _, err := subscription.Parse(message.Bytes, message.Envelope.Params)
		if err != nil {
			return err
		}
		go func() {
			s.mu.Lock()
			s.subscribed = idAtProcess(message)
			s.mu.Unlock()
			s.Emit(changed(acknowledged, message, `"notifications":`+filter.String()+`,`))
		}()
	case "notifications/cancelled":
		s.mu.Lock()
		over := s.subscribed
		s.subscribed = ""
		s.mu.Unlock()
		time.AfterFunc(5*time.Millisecond, func() { s.Emit(`{"jsonrpc":"2.0","id":` + over + `,"result":{}}`) })
	default:
		return s.script.Send(ctx, sent)
	}
	return nil
}

// change has the resource change, and says how many changes were lost so far.
func (s *subscribable) change() (lost int) {
	s.mu.Lock()
	id := s.subscribed
	if id == "" {
		s.lost++
	}
	lost = s.lost
	s.mu.Unlock()
	if id != "" {
		s.Emit(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a://x","_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`)
	}
	return lost
}

// A resource changes a hundred times a second while clients come with resources of their own.
// A client that misses a change gets an update of the resource later.
func TestNoUpdateIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits()
		limits.Listens = 1000
		p := &subscribable{script: newScript(nil)}
		r := newProcess(p, nil, &shared{metrics: &Metrics{}, continuations: &continuations{}, hub: newHub(), options: Options{Limits: limits}}, func(*process, error) {})
		one := listening(t, r, `"resourceSubscriptions":["a://x"]`)
		var others []*Call
		lost, owed := 0, 0
		for i, justLost := 0, false; i < 300 || !justLost; i++ { // and no change after the last comes to the rescue
			if i%10 == 0 {
				others = append(others, listening(t, r, fmt.Sprintf(`"resourceSubscriptions":["b://%d"]`, i)))
			}
			now := p.change()
			if justLost = now > lost; justLost {
				owed, lost = owed+1, now
			}
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			if got := one.received(); slices.ContainsFunc(got, func(text string) bool { return strings.Contains(text, `"a://x"`) }) {
				owed = 0
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(one.received()) > 0 {
			owed = 0
		}
		if lost == 0 || owed > 0 {
			t.Errorf("of %d changes that the client missed, %d were followed by nothing", lost, owed)
		}
		for _, c := range append(others, one) {
			c.Release()
		}
		r.fail(errDied)
	})
}

// Each replacement has all clients look again at what they are subscribed to, so after a burst
// replacements are paced, and clients wait for the next one together.
func TestReplacementsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits()
		limits.Listens = 1000
		p := &subscribable{script: newScript(nil)}
		r := newProcess(p, nil, &shared{metrics: &Metrics{}, continuations: &continuations{}, hub: newHub(), options: Options{Limits: limits}}, func(*process, error) {})
		calls := []*Call{listening(t, r, `"resourceSubscriptions":["a://x"]`)}
		replaced := func() (times int) {
			for _, text := range calls[0].received() {
				if text == updated("a://x") {
					times++
				}
			}
			return times
		}
		join := func(number int) {
			calls = append(calls, listening(t, r, fmt.Sprintf(`"resourceSubscriptions":["b://%d"]`, number)))
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		for number := range replaceBurst {
			join(number)
		}
		if got := replaced(); got != replaceBurst {
			t.Errorf("%d of %d replacements of a burst are made", got, replaceBurst)
		}
		for number := range 100 {
			join(100 + number)
		}
		if got := replaced(); got < 4 || got > 6 {
			t.Errorf("%d replacements are made in a second, want about four", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for _, c := range calls[1:] {
			if got := c.received(); len(got) == 0 {
				t.Error("a client gets no answer")
				break
			}
		}
		for _, c := range calls {
			c.Release()
		}
		r.fail(errDied)
	})
}

// What clients subscribe to is bounded, also if all subscribe to the same.
func TestFiltersAreBounded(t *testing.T) {
	limits := testLimits()
	limits.Listens = 1000
	p := &subscribable{script: newScript(nil)}
	r := newProcess(p, nil, &shared{metrics: &Metrics{}, continuations: &continuations{}, hub: newHub(), options: Options{Limits: limits}}, func(*process, error) {})
	defer r.fail(errDied)
	var uris []string
	for i := range 100 {
		uris = append(uris, fmt.Sprintf(`"a://%d/%s"`, i, strings.Repeat("x", 8000)))
	}
	text := enveloped("1", subscription.MethodListen, `"notifications":{"resourceSubscriptions":[`+strings.Join(uris, ",")+`]},`)
	taken := 0
	for range 100 {
		if _, err := r.call(t.Context(), scanned(text), true); err != nil {
			break
		}
		taken++
	}
	if taken < 2 || taken > 2*maxFilterBytes/len(text) {
		t.Errorf("%d clients with %d bytes each are taken", taken, len(text))
	}
}

package stateless

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

const listen = `"notifications":{"toolsListChanged":true},`

// news is a notification of the process's for a subscription.
func news(method string, request session.Message) string {
	return `{"jsonrpc":"2.0","method":"` + method + `","params":{"x":1.0,"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(request.Envelope.ID.Of(request.Bytes)) + `}}}`
}

// open opens a subscription and reads its first message (N-02).
func (s *stage) open(p *script, id string) (*posted, session.Message) {
	s.Helper()
	call := s.post(enveloped(id, methodListen, listen))
	if p == nil {
		p = s.process()
		s.started <- p // for whoever looks next
	}
	request := p.next(s.T)
	p.emit(news("notifications/subscriptions/acknowledged", request))
	if got := call.response().Header.Get("Content-Type"); got != "text/event-stream" {
		s.Errorf("the answer is %s", got)
	}
	s.equal("N-03", call.event(), `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"x":1.0,"_meta":{"io.modelcontextprotocol/subscriptionId":`+id+`}}}`)
	return call, request
}

// S-11, N-03, N-06: news go to the subscription that they name, under the id that its
// client chose, with its type.
func TestListen(t *testing.T) {
	s := newStage(t, nil, nil)
	one, first := s.open(nil, `"5"`)
	p := s.process()
	two, second := s.open(p, `5`)
	p.emit(news("notifications/tools/list_changed", second))
	p.emit(news("notifications/resources/updated", first))
	s.equal("one", one.event(), `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"x":1.0,"_meta":{"io.modelcontextprotocol/subscriptionId":"5"}}}`)
	s.equal("two", two.event(), `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"x":1.0,"_meta":{"io.modelcontextprotocol/subscriptionId":5}}}`)
	// N-04, and what belongs to nobody.
	p.emit(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(first.Envelope.ID.Of(first.Bytes)) + `,"progress":1}}`)
	p.emit(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	p.answer(first, `"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":`+string(first.Envelope.ID.Of(first.Bytes))+`}}`)
	s.equal("N-05 the end", one.want(200), "event: message\ndata: "+`{"jsonrpc":"2.0","id":"5","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"5"}}}`+"\n\n")
	// The other one goes on until its client leaves.
	p.emit(news("notifications/prompts/list_changed", second))
	two.event()
	two.leave()
	cancelled := p.next(t)
	if string(cancelled.Envelope.RequestID.Of(cancelled.Bytes)) != string(second.Envelope.ID.Of(second.Bytes)) {
		t.Errorf("the process is sent %s", cancelled.Bytes)
	}
}

const complete = `"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":9}}`

// N-05, U-03: some processes end a subscription by cancelling it. Clients are told the
// other way.
func TestListenCancelledByTheProcess(t *testing.T) {
	s := newStage(t, nil, nil)
	call, request := s.open(nil, `9`)
	p := s.process()
	p.emit(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + string(request.Envelope.ID.Of(request.Bytes)) + `}}`)
	call.want(200, `{"jsonrpc":"2.0","id":9,`+complete+`}`)
	if len(p.sent) > 0 {
		t.Errorf("the process is sent %s", p.next(t).Bytes)
	}
}

// N-07: a process that has nothing to subscribe to says so, with a status of its own.
func TestListenRefused(t *testing.T) {
	s := newStage(t, nil, nil)
	call := s.post(enveloped("1", methodListen, listen))
	p := s.process()
	p.answer(p.next(t), `"error":{"code":-32601,"message":"no"}`)
	call.want(404, `"id":1`)
}

// A drain ends subscriptions in order, lets calls finish, and takes no more.
func TestDrain(t *testing.T) {
	s := newStage(t, nil, nil)
	subscribed, _ := s.open(nil, `9`)
	p := s.process()
	call := s.post(enveloped("1", "some/method", ""))
	request := p.next(t)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.endpoint.Drain(t.Context())
	}()
	subscribed.want(200, complete)
	if got := p.next(t); string(got.Envelope.Method) != "notifications/cancelled" {
		t.Errorf("the process is sent %s, want the end of the subscription", got.Bytes)
	}
	s.post(enveloped("2", "some/method", "")).want(503, ErrClosed.Error(), `"id":2`)
	select {
	case <-drained:
		t.Error("the call was not waited for")
	case <-p.closed:
		t.Error("the process was ended under the call")
	default:
	}
	p.answer(request, `"result":{"done":true}`)
	call.want(200, `"done":true`)
	<-drained
	<-p.closed
}

// When a drain is to wait no longer, calls in flight get an error.
func TestDrainInAHurry(t *testing.T) {
	s := newStage(t, nil, nil)
	call := s.post(enveloped("1", "some/method", ""))
	p := s.process()
	p.next(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.endpoint.Drain(ctx)
	call.want(200, ErrClosed.Error(), `-32603`, `"id":1`)
	s.endpoint.Drain(ctx) // and again
}

var errDied = errors.New("it died of something")

// S-08: when the process dies calls in flight, and subscriptions, get an error, and the
// next request has a fresh process.
func TestDeath(t *testing.T) {
	s := newStage(t, nil, nil)
	subscribed, _ := s.open(nil, `"l"`)
	p := s.process()
	call := s.post(enveloped(`"c"`, "some/method", ""))
	p.next(t)
	p.end(errDied)
	s.equal("call", call.want(200), `{"jsonrpc":"2.0","id":"c","error":{"code":-32603,"message":"it died of something"}}`)
	subscribed.want(200, `{"jsonrpc":"2.0","id":"l","error":{"code":-32603,"message":"it died of something"}}`)
	again := s.post(enveloped("1", "some/method", ""))
	fresh := s.process()
	request := fresh.next(t)
	if strings.Contains(string(request.Bytes), "discover") {
		t.Errorf("the process is asked for its era again: %s", request.Bytes)
	}
	fresh.answer(request, `"result":{}`)
	again.want(200, `"result":{}`)
	// Those that do not last are not followed by others at once.
	fresh.end(errDied)
	await(t, "the end", func() bool {
		s.endpoint.process.mu.Lock()
		defer s.endpoint.process.mu.Unlock()
		return s.endpoint.process.failures == 2
	})
	s.post(enveloped("1", "some/method", "")).want(503, "the next start is in", errDied.Error())
}

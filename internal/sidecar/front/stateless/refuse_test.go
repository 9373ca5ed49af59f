package stateless

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless/sessionlesstest"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// busyServer takes nothing.
type busyServer struct{ *script }

func (busyServer) Send(context.Context, session.Message) error {
	return fmt.Errorf("there is no process left: %w", fault.ErrBusy)
}

// Every error of the server has an answer with the client's id, and a limit that is reached
// counts.
func TestRefuse(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*sessionless.Options)
		status  int
		part    string
		refused uint64
	}{
		"busy": {func(o *sessionless.Options) {
			o.Era, o.Acquire = sessionless.Modern, func(context.Context) (mux.Server, error) { return busyServer{sessionlesstest.New(nil)}, nil }
		}, 503, `"message":"there is no process left: ` + fault.ErrBusy.Error(), 1},
		"no process": {func(o *sessionless.Options) {
			o.Acquire = func(context.Context) (mux.Server, error) { return nil, errors.New("none") }
		}, 503, `"message":"the server does not take requests now: none`, 0},
		"sessions only": {func(o *sessionless.Options) { o.Era = sessionless.Legacy }, 400, `"code":-32600`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, test.change, nil)
			call := s.post(enveloped(`"e"`, "some/method", ""))
			call.want(test.status, `"id":"e"`, test.part)
			if got := call.answer.Header.Get("Retry-After"); (got == "") != (test.status != 503) {
				t.Errorf("Retry-After is %q", got)
			}
			if got := s.endpoint.Metrics().Refused.Value(); got != test.refused {
				t.Errorf("%d refusals are counted, want %d", got, test.refused)
			}
		})
	}
}

// N-02, N-07: a subscription is a stream. One that the process refuses has the status of the
// error.
func TestSubscription(t *testing.T) {
	s := newStage(t, nil, nil)
	subscribe := enveloped("1", subscription.MethodListen, `"notifications":{"toolsListChanged":true},`)
	refused := s.post(subscribe)
	p := s.process()
	p.Answer(p.Next(t), `"error":{"code":-32601,"message":"no"}`)
	refused.want(404, `"id":1`)
	call := s.post(subscribe)
	upstream := p.Next(t)
	p.Emit(`{"jsonrpc":"2.0","method":"` + subscription.MethodAcknowledged + `","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(upstream.Envelope.ID.Of(upstream.Bytes)) + `}}}`)
	if got := call.response().Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("the answer is %s", got)
	}
	s.equal("N-02", call.event(), `{"jsonrpc":"2.0","method":"`+subscription.MethodAcknowledged+`","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1},"notifications":{"toolsListChanged":true}}}`)
}

package stateless

import (
	"context"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless/sessionlesstest"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// A server learns which client makes a request.
func TestCaller(t *testing.T) {
	seen := make(chan caller.Caller, 1)
	s := newStage(t, func(o *sessionless.Options) {
		o.Era, o.Acquire = sessionless.Modern, func(context.Context) (mux.Server, error) { return callerServer{sessionlesstest.New(nil), seen}, nil }
	}, nil)
	of := func(headers ...string) caller.Caller {
		s.post(enveloped("1", "some/method", ""), headers...)
		return <-seen
	}
	one, two, none := of("Authorization", "Bearer one"), of("Authorization", "Bearer two"), of()
	if one.Group() == two.Group() || strings.Contains(one.Group(), "Bearer") || one.Authorization[0] != "Bearer one" {
		t.Errorf("got callers %+v and %+v", one, two)
	}
	if again := of("Authorization", "Bearer one"); again.Group() != one.Group() {
		t.Errorf("got %+v and then %+v for the same", one, again)
	}
	if none.Group() != "address 127.0.0.1" || none.Authorization != nil {
		t.Errorf("got %+v for a client without a token", none)
	}
}

type callerServer struct {
	*script
	seen chan caller.Caller
}

func (p callerServer) Send(_ context.Context, sent session.Message) error {
	message := sent.Bytes
	from := sent.From
	if e, err := rpc.Scan(message); err == nil && e.Kind == rpc.Request { // and no cancellation
		p.seen <- *from
	}
	return nil
}

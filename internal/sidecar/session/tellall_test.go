package session

import (
	"context"
	"errors"
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// senders is a server that records who sends it messages.
type senders struct {
	recorder
	from []*caller.Caller
}

func (s *senders) Send(ctx context.Context, sent Message) error {
	s.from = append(s.from, sent.From)
	return s.recorder.Send(ctx, sent)
}

// TellAll sends notifications and answers, and returns requests. All of them name the client.
func TestTellAll(t *testing.T) {
	server := &senders{}
	h := &harness{New(server, testLimits, &Metrics{}), t, &server.recorder}
	defer h.End(ErrEnded)
	messages := func() []Message {
		return []Message{
			h.message(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`),
			h.message(`{"jsonrpc":"2.0","method":"notifications/initialized"}`),
			h.message(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`),
		}
	}
	requests, err := h.TellAll(t.Context(), client, messages())
	if err != nil || len(requests) != 2 || len(server.messages()) != 1 || server.from[0] != client {
		t.Fatalf("%d requests, the server got %q: %v", len(requests), server.messages(), err)
	}
	for i := range requests {
		if requests[i].Envelope.Kind != rpc.Request || requests[i].From != client {
			t.Errorf("message %d is %s, from %v", i, requests[i].Bytes, requests[i].From)
		}
	}
	server.err = errors.New("the server does not read")
	if _, err := h.TellAll(t.Context(), client, messages()); !errors.Is(err, server.err) {
		t.Errorf("got %v", err)
	}
}

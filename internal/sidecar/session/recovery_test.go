package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// An answer that did not reach the server must still be taken when the client,
// told to try again (503, Retry-After), does.
func TestAnswerIsSentAgain(t *testing.T) {
	h := newHarness(t, testLimits)
	if _, err := h.Open(); err != nil {
		t.Fatal(err)
	}
	h.Deliver(h.message(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create"}`))
	answer := h.message(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	h.server.err = errors.New("it does not read now")
	if h.Tell(t.Context(), answer) == nil {
		t.Fatal("sent")
	}
	h.server.err = nil
	if err := h.Tell(t.Context(), answer); err != nil {
		t.Fatal(err)
	}
	if got := h.server.messages(); len(got) != 1 {
		t.Errorf("the server got %q, want the answer", got)
	}
}

// a request of the server's that no longer waits, because notifications took
// its place, must be refused, also if a stream opens before its time is up.
func TestRequestPushedOutOfBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, testLimits)
		h.Deliver(h.message(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`))
		for range 4 {
			h.Deliver(h.message(fmt.Sprintf(`{"jsonrpc":"2.0","method":"n","params":{"x":%q}}`, strings.Repeat("x", 100))))
		}
		stream, err := h.Open()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * testLimits.DeliveryTimeout)
		synctest.Wait()
		delivered := false
		for {
			event, ok, _ := stream.Take()
			if !ok {
				break
			}
			delivered = delivered || strings.Contains(string(event.Message), "roots/list")
		}
		if refused := len(h.server.messages()) == 1; !delivered && !refused {
			t.Error("the request was neither delivered nor refused: its server never gets an answer")
		}
	})
}

// A session whose opening outlasts the drain must not live on.
func TestFillAfterDrain(t *testing.T) {
	r := NewRegistry(Policy{Max: 1, IdleTimeout: time.Hour, MaxLifetime: time.Hour})
	slot, err := r.Reserve(t.Context(), &caller.Caller{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Drain(ctx)
	h := newHarness(t, testLimits)
	slot.Fill(t.Context(), "late", h.Session)
	select {
	case <-h.Done():
	default:
		t.Error("a session goes on after the drain")
	}
}

// A panic in Deliver, which ends one session where a process is that session's alone, leaves no
// lock locked: the sweep of all sessions would wait for it.
func TestDeliverPanicLeavesNoLock(t *testing.T) {
	for name, kind := range map[string]rpc.Kind{"answer": rpc.Response, "request": rpc.Request, "notification": rpc.Notification} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, testLimits)
			nowhere := rpc.Span{Start: 5, End: 10}
			broken := Message{Bytes: []byte("{}"), Envelope: rpc.Envelope{Kind: kind, ID: nowhere, ProgressToken: nowhere, Method: []byte(progressMethod)}}
			func() {
				defer func() {
					if recover() == nil {
						t.Error("it did not panic")
					}
				}()
				h.Deliver(broken)
			}()
			if !h.mu.TryLock() {
				t.Fatal("the session is locked")
			}
			h.mu.Unlock()
			h.End(ErrEnded)
		})
	}
}

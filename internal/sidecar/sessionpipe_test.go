package sidecar

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// obedient does what it is told, and does not answer what was cancelled (U-02).
type obedient struct{}

func (obedient) Send(context.Context, *caller.Caller, []byte) error { return nil }

func (obedient) Close() {}

// Calls that were cancelled do not count for ever, and neither do those whose time is up.
// When the session ends nobody looks at it any more.
func TestCancelledCallsOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var metrics session.Metrics
		server, err := inSessions(func(context.Context, *caller.Caller) (*session.Session, error) {
			return session.New(obedient{}, session.Limits{
				Calls: 2, Streams: 2, PendingBytes: 1 << 20, TotalBytes: 1 << 20,
				CallTimeout: time.Minute, CancelGrace: time.Second, DeliveryTimeout: time.Second,
			}, &metrics), nil
		})(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		server.Serve(func(session.Message) {}, func(error) {})
		for i := range 6 {
			id := strconv.Itoa(i + 1)
			if err := server.Send(t.Context(), nil, []byte(`{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{}}`)); err != nil {
				t.Errorf("call %s: %v", id, err)
			}
			if i >= 3 {
				time.Sleep(40 * time.Second) // so that there are two at a time
				continue
			}
			if err := server.Send(t.Context(), nil, []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`)); err != nil {
				t.Errorf("end of call %s: %v", id, err)
			}
			time.Sleep(time.Hour)
		}
		if got := metrics.CallTimeouts.Value(); got == 0 {
			t.Error("no call has ended because its time was up")
		}
		server.Close()
		synctest.Wait()
	})
}

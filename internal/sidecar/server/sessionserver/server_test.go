package sessionserver

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// obedient does what it is told, and does not answer what was cancelled (U-02).
type obedient struct{}

func (obedient) Send(context.Context, session.Message) error { return nil }

func (obedient) Close() {}

// stubborn answers what was cancelled.
type stubborn struct {
	obedient
	opened *session.Session
}

func (s *stubborn) Send(_ context.Context, sent session.Message) error {
	message := sent.Bytes
	if !bytes.Contains(message, []byte("cancelled")) {
		return nil
	}
	answer := []byte(`{"jsonrpc":"2.0","id":1,"error":{"code":0,"message":"stopped"}}`)
	envelope, err := rpc.Scan(answer)
	if err != nil {
		return err
	}
	s.opened.Deliver(session.Message{Bytes: answer, Envelope: envelope})
	return nil
}

// B-06: who makes calls for clients without sessions learns when the server is done with one
// that was cancelled, so that the server need not be ended.
func TestAnswerToACancelledCallOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := &stubborn{}
		behind.opened = session.New(behind, session.Limits{
			Calls: 2, Streams: 2, PendingBytes: 1 << 20, TotalBytes: 1 << 20, CallTimeout: time.Minute, CancelGrace: time.Second,
		}, &session.Metrics{})
		made, err := New(behind.opened, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		made.Serve(func(message session.Message) { got = append(got, string(message.Bytes)) }, func(error) {})
		for _, message := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		} {
			if err := made.Send(t.Context(), session.Message{Bytes: []byte(message)}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(got) != 1 || !strings.Contains(got[0], `"stopped"`) {
			t.Errorf("got %q, want the answer", got)
		}
		made.Close()
		time.Sleep(time.Minute) // for its timer
		synctest.Wait()
	})
}

// Canceled calls stop counting after a while, and so do calls that time out.
// When the session ends, no timer refers to it any more.
func TestCancelledCallsOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var metrics session.Metrics
		server, err := New(session.New(obedient{}, session.Limits{
			Calls: 2, Streams: 2, PendingBytes: 1 << 20, TotalBytes: 1 << 20,
			CallTimeout: time.Minute, CancelGrace: time.Second, DeliveryTimeout: time.Second,
		}, &metrics), nil)
		if err != nil {
			t.Fatal(err)
		}
		server.Serve(func(session.Message) {}, func(error) {})
		for i := range 6 {
			id := strconv.Itoa(i + 1)
			if err := server.Send(t.Context(), session.Message{Bytes: []byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{}}`)}); err != nil {
				t.Errorf("call %s: %v", id, err)
			}
			if i >= 3 {
				time.Sleep(40 * time.Second) // so that there are two at a time
				continue
			}
			if err := server.Send(t.Context(), session.Message{Bytes: []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)}); err != nil {
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

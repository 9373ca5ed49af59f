package tolegacy

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// whole is a session over a Server over a scripted modern one.
type whole struct {
	*stage
	session *session.Session
}

func inSession(t *testing.T, test func(w *whole)) {
	t.Helper()
	staged(t, func(s *stage) {
		w := &whole{stage: s}
		w.session = session.New(s.server, session.Limits{
			Calls: 8, Streams: 2, ReplayBytes: 1 << 20, PendingBytes: 1 << 20, TotalBytes: 1 << 20,
			CallTimeout: time.Hour, CancelGrace: time.Second, DeliveryTimeout: 5 * time.Second,
		}, &session.Metrics{})
		s.server.Serve(w.session.Deliver, w.session.End)
		answer := w.call(initialize(r11, `{"elicitation":{},"sampling":{}}`))
		s.next().answer(changing)
		w.wantOn(answer, `"protocolVersion":"2025-11-25"`)
		test(w)
		w.session.End(session.ErrIdle)
	})
}

func (w *whole) message(text string) session.Message {
	w.t.Helper()
	e, err := rpc.Scan([]byte(text))
	if err != nil {
		w.t.Fatal(err)
	}
	return session.Message{Bytes: []byte(text), Envelope: e}
}

func (w *whole) call(text string) *session.Stream {
	w.t.Helper()
	stream, err := w.session.Call(w.t.Context(), w.message(text))
	if err != nil {
		w.t.Fatal(err)
	}
	return stream
}

func (w *whole) say(text string) {
	w.t.Helper()
	if err := w.session.Tell(w.t.Context(), w.message(text)); err != nil {
		w.t.Fatal(err)
	}
}

// wantOn compares, by parts, all that is on a stream by now with what should be.
func (w *whole) wantOn(stream *session.Stream, parts ...string) {
	w.t.Helper()
	synctest.Wait()
	for {
		event, ok, _ := stream.Take()
		switch {
		case !ok && len(parts) > 0:
			w.t.Errorf("%s is not on the stream", parts[0])
			return
		case !ok:
			return
		case len(parts) == 0:
			w.t.Errorf("on the stream: %s", event.Message)
			return
		case !strings.Contains(string(event.Message), parts[0]):
			w.t.Errorf("on the stream: %s, want %s in it", event.Message, parts[0])
		}
		parts = parts[1:]
	}
}

// Q-02, T-07, T-11, B-05: questions, log messages and answers travel on the streams of their
// calls, announcements of subscriptions on the general one.
func TestStreams(t *testing.T) {
	inSession(t, func(w *whole) {
		general, err := w.session.Open()
		if err != nil {
			t.Fatal(err)
		}
		w.say(initialized)
		listen := w.next()
		listen.agree(`{` + lists + `}`)
		one := w.call(strings.Replace(toolCall, `"id":3`, `"id":1`, 1))
		first := w.next()
		listen.announce(tools, "")
		w.wantOn(general, tools)
		two := w.call(strings.Replace(toolCall, `"id":3`, `"id":"2"`, 1))
		second := w.next()
		first.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
		first.answer(needs(`{"a":`+elicit+`}`, `"z"`))
		w.wantOn(one, "notifications/message", `"id":"slipway-e1"`)
		second.answer(needs(`{"a":`+elicit+`}`, `"z"`))
		w.wantOn(two, `"id":"slipway-e2"`)
		w.say(`{"jsonrpc":"2.0","id":"slipway-e2","result":{"action":"accept"}}`)
		w.next().answer(`"result":{}`)
		w.wantOn(two, `"id":"2","result":{}`)
		w.say(`{"jsonrpc":"2.0","id":"slipway-e1","result":{"action":"accept"}}`)
		w.next().answer(`"result":{}`)
		w.wantOn(one, `"id":1,"result":{}`)
		w.wantOn(general)
	})
}

// T-08, T-21: a client that loses its connection in a round comes back to it, and nothing
// is done twice.
func TestResume(t *testing.T) {
	inSession(t, func(w *whole) {
		stream := w.call(toolCall)
		beginning, ok := stream.MakeResumable()
		if !ok {
			t.Fatal("not resumable")
		}
		x := w.next()
		x.answer(needs(`{"a":`+elicit+`}`, `"z"`))
		w.wantOn(stream, `"id":"slipway-e1"`)
		stream.Detach()
		w.say(`{"jsonrpc":"2.0","id":"slipway-e1","result":{"action":"accept"}}`)
		w.next().answer(`"result":{}`)
		synctest.Wait()
		again, err := w.session.Resume(beginning)
		if err != nil {
			t.Fatal(err)
		}
		w.wantOn(again, `"id":"slipway-e1"`, `"id":3,"result":{}`)
		w.wantIdle()
	})
}

// a question that no stream takes is answered by the session, and the call goes on.
func TestNoStreamToAsk(t *testing.T) {
	inSession(t, func(w *whole) {
		stream := w.call(toolCall)
		x := w.next()
		stream.Detach() // and cannot come back
		x.answer(needs(`{"a":`+elicit+`}`, `"z"`))
		synctest.Wait()
		time.Sleep(5 * time.Second)
		again := w.next()
		if !strings.Contains(again.request, `"inputResponses":{"a":{"action":"cancel"}}`) {
			t.Errorf("asked for %s", again.request)
		}
	})
}

// L-07: a call that takes too long is cancelled at the server.
func TestCallTimeout(t *testing.T) {
	inSession(t, func(w *whole) {
		stream := w.call(toolCall)
		x := w.next()
		w.session.Sweep(w.t.Context(), time.Now().Add(2*time.Hour))
		w.wantOn(stream, `"id":3,"error"`)
		if !x.cancelled() {
			t.Error("the server works on")
		}
	})
}

// A client that does not read holds up its own session and no Send.
func TestSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		modern := &script{}
		server := New(Options{Modern: modern, Limits: testLimits(), Metrics: &Metrics{}})
		block := make(chan struct{})
		server.Serve(func(session.Message) { <-block }, func(error) {})
		for _, text := range []string{
			initialize(r11, `{}`), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
		} {
			if err := server.Send(t.Context(), session.Message{Bytes: []byte(text)}); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
		close(block)
		server.Close()
	})
}

// A bug of the adapter ends one session, and says why.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		modern, metrics := &script{}, &Metrics{}
		server := New(Options{Modern: modern, Limits: testLimits(), Metrics: metrics})
		var reasons []error
		server.Serve(func(session.Message) { panic("at the disco") }, func(reason error) { reasons = append(reasons, reason) })
		if err := server.Send(t.Context(), session.Message{Bytes: []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		server.Close()
		synctest.Wait()
		if len(reasons) != 1 || !strings.Contains(reasons[0].Error(), "at the disco") || metrics.Panics.Value() != 1 {
			t.Errorf("ended by %v", reasons)
		}
	})
}

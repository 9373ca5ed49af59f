package streamable

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// recorded has records of calls sent to a channel.
func recorded(records chan edge.Record) func(*edge.Options) {
	return func(o *edge.Options) {
		o.Closed = func(r edge.Record) {
			if r.Method == "tools/call" {
				records <- r
			}
		}
	}
}

func recordedError(t *testing.T, records chan edge.Record) edge.ErrorType {
	t.Helper()
	select {
	case r := <-records:
		return r.Error
	case <-time.After(hang.Guard):
		t.Fatal("nothing is recorded")
		return ""
	}
}

// T-21: a client that comes back to its stream is answered at once, though the adapter has
// not noticed that the old connection is dead. That ends, and nothing more is written there.
func TestClientComesBackBeforeItIsMissed(t *testing.T) {
	records := make(chan edge.Record, 16)
	e := newEndpoint(t, func(o *Options) { o.KeepAlive = time.Hour }, recorded(records))
	id := e.openSession(revision20251125)
	old := events(e.post(id, `{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":"ask"}}`).Body)
	var seen []event
	for range 2 { // the priming event and the question
		got, err := old()
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, got)
	}

	// The old connection stays open, and is not read meanwhile.
	resumed := e.do("GET", "", map[string]string{"Accept": typeEvents, headerSession: id, headerLastEventID: seen[0].id})
	if resumed.StatusCode != http.StatusOK {
		t.Fatalf("resumed: %s: %s", resumed.Status, bodyOf(t, resumed))
	}
	next := events(resumed.Body)
	for i := range seen {
		if got, err := next(); err != nil || got != seen[i] {
			t.Errorf("event %d is %+v, %v; want %+v", i, got, err, seen[i])
		}
	}
	if got, err := old(); err == nil {
		t.Errorf("the old connection gets %+v", got)
	}
	if got := recordedError(t, records); got != edge.Cancelled {
		t.Errorf("the outcome of the old request is %q", got)
	}

	_, rest, _ := strings.Cut(seen[1].data, `"id":`)
	asked, _, _ := strings.Cut(rest, ",")
	if got := e.post(id, `{"jsonrpc":"2.0","id":`+asked+`,"result":{"action":"accept","content":{}}}`); got.StatusCode != http.StatusAccepted {
		t.Fatalf("answer: %s", got.Status)
	}
	if got, err := next(); err != nil || !strings.Contains(got.data, `"id":"q","result"`) {
		t.Errorf("got %+v, %v; want the answer", got, err)
	}
	if got, err := next(); err == nil {
		t.Errorf("got %+v after the answer", got)
	}
}

// What was gathered for a client is not written to a connection that it has left for another.
func TestNothingIsWrittenInTwoPlaces(t *testing.T) {
	opened := session.New(&bigServer{}, testLimits, &session.Metrics{})
	defer opened.End(errors.New("over"))
	old, err := opened.Open()
	if err != nil {
		t.Fatal(err)
	}
	beginning, _ := old.MakeResumable()
	client := httptest.NewRecorder()
	events := front.StartEvents(client, http.StatusOK, time.Hour, old)
	events.Comment() // stands for what was taken
	if _, err := opened.Resume(beginning); err != nil {
		t.Fatal(err)
	}
	source := &source{stream: old, record: &edge.Record{}}
	if all := events.Run(t.Context(), time.Hour, source); !all || client.Body.Len() > 0 || source.record.Error != edge.Cancelled {
		t.Errorf("the old connection ends: %v, with %q and outcome %q", all, client.Body, source.record.Error)
	}
}

// R16: one stream more than there may be is no reason to turn the client away.
func TestClientOpensManyStreams(t *testing.T) {
	e := newEndpoint(t, func(o *Options) { o.KeepAlive = time.Hour })
	id := e.openSession(revision20250618)
	var streams []*http.Response
	for i := range testLimits.Streams + 2 {
		stream := e.do("GET", "", map[string]string{"Accept": typeEvents, headerSession: id})
		if stream.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: %s: %s", i, stream.Status, bodyOf(t, stream))
		}
		streams = append(streams, stream)
	}
	for _, oldest := range streams[:2] {
		bodyOf(t, oldest) // which ends
	}
}

const cancellation = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"w"}}`

// U-02: a call that its client cancels ends without an answer, in a valid response.
func TestCancelledCallEnds(t *testing.T) {
	records := make(chan edge.Record, 16)
	e := newEndpoint(t, nil, recorded(records))
	id := e.openSession(revision20251125)
	answered := make(chan *http.Response)
	go func() {
		answered <- e.post(id, `{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"wait"}}`)
	}()
	gomega.NewWithT(t).Eventually(func() string { return e.server().lines() }).WithTimeout(hang.Guard).Should(gomega.ContainSubstring(`"wait"`))
	if got := e.post(id, cancellation); got.StatusCode != http.StatusAccepted {
		t.Fatalf("cancellation: %s", got.Status)
	}
	response := <-answered
	if body := bodyOf(t, response); response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != typeEvents || body != "" {
		t.Errorf("got %s, %s, %q; want an empty event stream", response.Status, response.Header.Get("Content-Type"), body)
	}
	if got := recordedError(t, records); got != edge.Cancelled {
		t.Errorf("the outcome is %q", got)
	}
	if seen := e.server().lines(); !strings.Contains(seen, cancellation) {
		t.Errorf("the server was not told:\n%s", seen)
	}
}

// The same when the answer is a stream already. The client has an event id, so it takes the
// end for a lost connection, and is told that there is nothing to come back for.
func TestCancelledStreamEnds(t *testing.T) {
	for _, revision := range []string{revision20250618, revision20251125} {
		t.Run(revision, func(t *testing.T) {
			records := make(chan edge.Record, 16)
			e := newEndpoint(t, nil, recorded(records))
			id := e.openSession(revision)
			next := events(e.post(id, `{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"ask"}}`).Body)
			var last event
			for last.data == "" {
				var err error
				if last, err = next(); err != nil {
					t.Fatal(err)
				}
			}
			if got := e.post(id, cancellation); got.StatusCode != http.StatusAccepted {
				t.Fatalf("cancellation: %s", got.Status)
			}
			for {
				got, err := next()
				if err != nil {
					break
				}
				if strings.Contains(got.data, `"id":"w"`) {
					t.Errorf("got %+v", got)
				}
				last = got
			}
			if got := recordedError(t, records); got != edge.Cancelled {
				t.Errorf("the outcome is %q", got)
			}
			again := e.do("GET", "", map[string]string{"Accept": typeEvents, headerSession: id, headerLastEventID: last.id})
			if body := bodyOf(t, again); again.StatusCode != http.StatusNoContent || body != "" {
				t.Errorf("back after %s: %s: %s", last.id, again.Status, body)
			}
			if got := e.do("GET", "", map[string]string{"Accept": typeEvents, headerSession: id, headerLastEventID: "77_1"}); got.StatusCode != http.StatusBadRequest {
				t.Errorf("T-24 back to no stream: %s", got.Status)
			}
		})
	}
}

// The other calls of a batch have their answers.
func TestCancelledOneOfABatch(t *testing.T) {
	e := newEndpoint(t, nil)
	id := e.openSession(revision20250326)
	response := e.post(id, `[{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"wait"}}, {"jsonrpc":"2.0","id":2,"method":"ping"}]`)
	next := events(response.Body)
	if got, err := next(); err != nil || !strings.Contains(got.data, `"id":2,"result"`) {
		t.Fatalf("got %+v, %v", got, err)
	}
	if got := e.post(id, cancellation); got.StatusCode != http.StatusAccepted {
		t.Fatalf("cancellation: %s", got.Status)
	}
	if got, err := next(); err == nil {
		t.Errorf("got %+v", got)
	}
}

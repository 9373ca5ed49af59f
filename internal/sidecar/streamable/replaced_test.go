package streamable

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
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

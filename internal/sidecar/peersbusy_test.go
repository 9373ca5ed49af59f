package sidecar

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/test/hang"
)

// startCrowded starts an owner, and an entry that passes on one stream at a time.
func startCrowded(t *testing.T) (owner, entry *replica) {
	t.Helper()
	replicas := startReplicas(t, 2, func(c *config.Config) { c.PeerStreams = 1 })
	return replicas[0], replicas[1]
}

// listen opens a stream of the client's session at a replica.
func (c *client) listen(ctx context.Context, t *testing.T) *http.Response {
	t.Helper()
	stream, err := c.do(ctx, http.MethodGet, "")
	if err != nil || stream.StatusCode != http.StatusOK {
		t.Fatalf("GET: %v, %v", stream, err)
	}
	t.Cleanup(func() { _ = stream.Body.Close() })
	return stream
}

func (r *replica) awaitForwards(t *testing.T, forwarded, waiting int) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() [2]int { return [2]int{r.peers.relay.Streams(), r.peers.relay.Waiting()} }).
		WithTimeout(hang.Guard).Should(gomega.Equal([2]int{forwarded, waiting}), "streams that are passed on, and that wait")
}

// viaEntry has sessions begin at the owner, and sends all that follows to the entry.
type viaEntry struct {
	owner, entry string
	over         http.RoundTripper
	listens      chan struct{} // has one item for each GET that may go
	stream       atomic.Pointer[io.ReadCloser]
}

func (v *viaEntry) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host, r.URL.Host = "", v.entry
	if r.Header.Get("Mcp-Session-Id") == "" {
		r.URL.Host = v.owner
	}
	if r.Method != http.MethodGet {
		return v.over.RoundTrip(r)
	}
	select {
	case <-v.listens:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	response, err := v.over.RoundTrip(r)
	if err == nil {
		v.stream.Store(&response.Body)
	}
	return response, err
}

// sdkListener is a client of the Go SDK, with the notifications that it gets.
type sdkListener struct {
	*mcp.ClientSession
	transport *viaEntry
	changes   chan struct{}
}

func listenBySDK(t *testing.T, owner, entry *replica, revision string) *sdkListener {
	t.Helper()
	over := &http.Transport{}
	t.Cleanup(over.CloseIdleConnections)
	c := &sdkListener{
		transport: &viaEntry{owner: owner.host, entry: entry.host, over: over, listens: make(chan struct{}, 16)},
		changes:   make(chan struct{}, 16),
	}
	c.transport.listens <- struct{}{}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { c.changes <- struct{}{} },
	}).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: "http://server" + Path, HTTPClient: &http.Client{Transport: c.transport}}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	c.ClientSession = session
	return c
}

// change has the server send a notification that belongs to no call.
func (c *sdkListener) change(ctx context.Context, t *testing.T) {
	t.Helper()
	if _, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "changes"}); err != nil {
		t.Errorf("the session is over: %v", err)
	}
}

func (c *sdkListener) wantChange(t *testing.T) {
	t.Helper()
	select {
	case <-c.changes:
	case <-time.After(hang.Guard):
		t.Error("the notification is lost")
	}
}

// A client of the Go SDK keeps its session if its entry passes on as many streams to the owner as it can, when it opens its
// stream and when it resumes it. The server's messages reach it when there is a place.
func TestBusyEntryKeepsSessions(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			owner, entry := startCrowded(t)
			ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
			defer cancel()
			other := clientOf(t, []*replica{owner, entry})
			first := other.listen(ctx, t)
			entry.awaitForwards(t, 1, 0)

			c := listenBySDK(t, owner, entry, revision)
			entry.awaitForwards(t, 1, 1)
			c.change(ctx, t)
			_ = first.Body.Close()
			c.wantChange(t)

			entry.awaitForwards(t, 1, 0)
			_ = (*c.transport.stream.Load()).Close() // the stream breaks off
			entry.awaitForwards(t, 0, 0)
			second := other.listen(ctx, t)
			c.transport.listens <- struct{}{}
			entry.awaitForwards(t, 1, 1)
			c.change(ctx, t)
			_ = second.Body.Close()
			c.wantChange(t)
		})
	}
}

// A client whose stream waits is told that the session is over, or that its entry goes away, by a connection that breaks
// off: it comes back and gets the answer.
func TestStreamThatWaitsBreaksOff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(t *testing.T, owner, entry *replica, waits *client, first *http.Response)
		then int // for the client that comes back, at the owner
	}{
		"the session is over": {func(t *testing.T, owner, _ *replica, waits *client, first *http.Response) {
			t.Helper()
			at := *waits
			at.url = "http://" + owner.host + Path
			at.http = http.DefaultClient
			if response, err := at.do(t.Context(), http.MethodDelete, ""); err != nil || response.StatusCode != http.StatusNoContent {
				t.Fatalf("DELETE: %v, %v", response, err)
			}
			_ = first.Body.Close()
		}, http.StatusNotFound},
		"the entry drains": {func(_ *testing.T, _, entry *replica, _ *client, _ *http.Response) { entry.Drain() }, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner, entry := startCrowded(t)
			ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
			defer cancel()
			replicas := []*replica{owner, entry}
			first := clientOf(t, replicas).listen(ctx, t)
			entry.awaitForwards(t, 1, 0)
			waits := clientOf(t, replicas)
			stream := waits.listen(ctx, t) // which has an answer after a while
			entry.awaitForwards(t, 1, 1)
			test.end(t, owner, entry, waits, first)
			text, err := io.ReadAll(stream.Body)
			if err == nil || errors.Is(err, context.DeadlineExceeded) || strings.Contains(string(text), "data:") {
				t.Errorf("got %q, %v", text, err)
			}
			waits.url, waits.http = "http://"+owner.host+Path, http.DefaultClient
			again, err := waits.do(ctx, http.MethodGet, "")
			if err != nil || again.StatusCode != test.then {
				t.Fatalf("GET: %v, %v", again, err)
			}
			_ = again.Body.Close()
		})
	}
}

// One client that connects to one pod may have a stream for each session that another pod can have.
func TestStreamsThatArePassedOn(t *testing.T) {
	for sessions, want := range map[int]relay.Limits{
		20:   {Requests: relay.DefaultRequests, Streams: relay.DefaultStreams},
		1000: {Requests: relay.DefaultRequests, Streams: 2000},
		5000: {Requests: 20_000, Streams: 10_000},
	} {
		cfg := config.Defaults()
		cfg.MaxSessions = sessions
		got := passed(&cfg)
		if diff := cmp.Diff(want, got); diff != "" || got.Streams*3/4 < sessions {
			t.Errorf("%d sessions (-want +got):\n%s", sessions, diff)
		}
	}
}

package proxy

import (
	"context"
	"crypto/rand"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote/remotetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// Short names for tests.
const (
	headerSession  = front.HeaderSession
	headerRevision = front.HeaderRevision
	typeJSON       = front.TypeJSON
	typeEvents     = front.TypeEvents
	ping           = remotetest.Ping
	initializeBody = remotetest.Initialize
)

type (
	backend = remotetest.Backend
	input   = remotetest.Input
)

var (
	newBackend       = remotetest.NewBackend
	streamableServer = remotetest.NewStreamable
	connect          = remotetest.Connect
	script           = remotetest.Script
	ok               = remotetest.OK
	text             = remotetest.Text
	revisions        = remotetest.Revisions
)

func within[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	return remotetest.Within(t, what, from)
}

var testLimits = Limits{
	Calls: 8, Streams: 4, Single: 8, Listens: 8, AnswerBytes: 16 << 20, MessageBytes: 16 << 20,
	MaxLifetime: time.Hour,
	OpenTimeout: hang.Guard, CallTimeout: hang.Guard, WriteTimeout: hang.Guard, KeepAlive: 50 * time.Millisecond,
}

// endpoint is a Proxy in front of a backend.
type endpoint struct {
	*remotetest.Front
	proxy *Proxy
	door  *edge.Door
}

func newEndpoint(t *testing.T, b *backend, change func(*Options), doors ...func(*edge.Options)) *endpoint {
	t.Helper()
	options := Options{
		URL:    b.URL("/mcp"),
		MintID: func() string { return "ours-" + rand.Text() }, Number: func() string { return "1" },
		Limits: testLimits, Sessions: newRegistry(8, time.Hour),
	}
	if change != nil {
		change(&options)
	}
	proxy := New(options)
	door := edgetest.At(proxy.Route(), append([]func(*edge.Options){admitExamples}, doors...)...)
	front := httptest.NewServer(door)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		proxy.Sessions.Drain(ctx)
		front.CloseClientConnections()
		front.Close()
	})
	return &endpoint{Front: &remotetest.Front{T: t, URL: front.URL + "/mcp"}, proxy: proxy, door: door}
}

func newRegistry(most int, lifetime time.Duration) *session.Registry {
	return session.NewRegistry(session.Policy{Max: most, IdleTimeout: time.Hour, MaxLifetime: lifetime})
}

func admitExamples(o *edge.Options) {
	policy := &origin.Policy{Hosts: []string{"mcp.example"}, Origins: []string{"https://chat.example"}}
	o.Admit = &edge.Origins{Policy: func() *origin.Policy { return policy }}
}

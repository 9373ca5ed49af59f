package sidecar

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
)

// tight has no memory for further processes once it is told so.
type tight struct {
	child.Starter
	full atomic.Bool
}

func (s *tight) Spawn(ctx context.Context, label string) (*launcher.Process, error) {
	if s.full.Load() {
		return nil, &launcher.RefusedError{Reason: launcher.ReasonMemory, Message: "30 of 32 MiB in use"}
	}
	return s.Starter.Spawn(ctx, label)
}

// If sessions take the memory, then the server is full. If there are none, it has too little. The
// manager's probe learns which, and clients get the same answer in both cases.
func TestProbeOfAServerWithoutMemory(t *testing.T) {
	t.Parallel()
	direct, err := launcher.NewDirect(launcher.Options{Command: []string{echoServer}, Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = direct.Close() })
	starter := &tight{Starter: direct}
	adapter, url := startAdapterBy(t, newListener(t), starter, func(c *config.Config) { c.Warm, c.Era = 0, sessionless.Legacy })
	client, err := newClient(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer client.http.CloseIdleConnections()
	starter.full.Store(true)
	refused := func(token string) *mcpprobe.Error {
		t.Helper()
		_, err := probe(t.Context(), url, token)
		e, ok := errors.AsType[*mcpprobe.Error](err)
		if !ok || busyStatus(err) != 503 || !strings.Contains(e.Detail, "30 of 32 MiB in use") {
			t.Fatalf("got %v", err)
		}
		return e
	}
	proof := func() string { return proofOf(testKey, testPodUID, time.Now()) }
	if refused(proof()).Failed {
		t.Error("a server with a session is not called full")
	}
	if err := client.delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if adapter.env.Sessions.Len() != 0 {
		t.Fatal("the session is still there")
	}
	if !refused(proof()).Failed {
		t.Error("a server without sessions is called full")
	}
	if refused("").Failed {
		t.Error("a client is told what only the manager needs")
	}
}

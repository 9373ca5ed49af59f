package sidecar

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
)

// fickle is a connection that breaks when it is written to while its pod is away.
type fickle struct {
	net.Conn
	away *atomic.Bool
}

func (f fickle) Write(b []byte) (int, error) {
	if f.away.Load() {
		return 0, errors.Join(net.ErrClosed, f.Close())
	}
	return f.Conn.Write(b)
}

// A pod that is lost while a client opens its stream there may have the session still. Clients take any answer for the end
// of the session, so there is none.
func TestLostStream(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	replicas := startReplicas(t, 2, func(c *config.Config) {
		c.DialPeer = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			if away.Load() {
				return nil, syscall.EHOSTUNREACH
			}
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
			if err != nil {
				return nil, err
			}
			return fickle{connection, &away}, nil
		}
	})
	c := clientOf(t, replicas)
	c.must(t, http.StatusOK) // on a connection that stays
	away.Store(true)
	c.http = &http.Client{Transport: &spread{replicas: replicas[1:], over: &http.Transport{DisableKeepAlives: true}}}
	if response, err := c.do(t.Context(), http.MethodGet, ""); err == nil {
		_ = response.Body.Close()
		t.Errorf("got %s", response.Status)
	}
	if lost := replicas[1].peers.relay.Forwards(relay.Lost); lost != 1 {
		t.Errorf("%d requests were lost", lost)
	}
	away.Store(false)
	c.must(t, http.StatusOK)
}

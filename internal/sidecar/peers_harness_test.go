package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/test/hang"
)

// replica is one of several adapters of the same server.
type replica struct {
	*Adapter
	host string // of the port for clients
	stop func() // ends the adapter, with its sessions
	// signal is that of the kubelet, to end.
	signal func()
	admin  string // the host of its admin port
}

// peerListeners opens one port at several addresses of this machine, as pods have it.
func peerListeners(t *testing.T, count int) []net.Listener {
	t.Helper()
	for {
		var opened []net.Listener
		address := "127.0.0.2:0"
		for i := range count {
			l, err := listener.Listen(t.Context(), address)
			if errors.Is(err, syscall.EADDRINUSE) {
				break // a program has the port at that address alone
			}
			if err != nil {
				t.Fatal(err)
			}
			opened = append(opened, l)
			address = fmt.Sprintf("127.0.0.%d:%d", i+3, netip.MustParseAddrPort(l.Addr().String()).Port())
		}
		if len(opened) == count {
			return opened
		}
		for _, l := range opened {
			_ = l.Close()
		}
	}
}

// startReplicas serves the echo server by several adapters with the same keys.
func startReplicas(t *testing.T, count int, change func(*config.Config), command ...string) []*replica {
	t.Helper()
	var replicas []*replica
	for i, peers := range peerListeners(t, count) {
		cfg := replicaConfig(i, peers)
		if change != nil {
			change(&cfg)
		}
		if cfg.Keys == nil {
			cfg.Keys = newKeys(t)
		}
		replicas = append(replicas, startReplica(t, cfg, peers, command...))
	}
	awaitReady(t, replicas...)
	return replicas
}

func replicaConfig(i int, peers net.Listener) config.Config {
	cfg := config.Defaults()
	cfg.Log = logr.Discard()
	cfg.DrainTimeout, cfg.StartTimeout = hang.Guard, hang.Guard
	cfg.Warm = 0
	cfg.Peers = true
	cfg.Owner.UID[0] = byte(i + 1)
	cfg.Owner.Address = netip.MustParseAddrPort(peers.Addr().String())
	return cfg
}

// awaitReady waits until the server of each replica has answered.
func awaitReady(t *testing.T, replicas ...*replica) {
	t.Helper()
	for _, r := range replicas {
		gomega.NewWithT(t).Eventually(func() bool { state, _ := r.env.Keeper.State(); return state.Ready }).WithTimeout(hang.Guard).Should(gomega.BeTrue())
	}
}

func startReplica(t *testing.T, cfg config.Config, peers net.Listener, command ...string) *replica {
	t.Helper()
	return startReplicaAt(t, cfg, newListener(t), peers, command...)
}

func startReplicaAt(t *testing.T, cfg config.Config, clients, peers net.Listener, command ...string) *replica {
	t.Helper()
	if len(command) == 0 {
		command = []string{echoServer}
	}
	direct, err := launcher.NewDirect(launcher.Options{Command: command, Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	return serveReplica(t, direct, cfg, clients, peers)
}

// starter starts the processes of a replica.
type starter interface {
	child.Starter
	io.Closer
}

func serveReplica(t *testing.T, processes starter, cfg config.Config, clients, peers net.Listener) *replica {
	t.Helper()
	adapter, admin := New(processes, cfg), newListener(t)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- adapter.Serve(ctx, Ports{Clients: clients, Admin: admin, Peers: peers}) }()
	stop := sync.OnceFunc(func() {
		adapter.Hurry()
		cancel()
		if err := errors.Join(<-served, processes.Close()); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return &replica{adapter, clients.Addr().String(), stop, cancel, admin.Addr().String()}
}

// spread sends each request to another replica than the one before, as a Service may.
type spread struct {
	replicas []*replica
	next     atomic.Uint32
	over     http.RoundTripper
}

func (e *spread) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = e.replicas[int(e.next.Add(1))%len(e.replicas)].host
	r.Host = ""
	return e.over.RoundTrip(r)
}

// clientOf returns a client whose session is at the first replica, and whose next requests go to the others.
func clientOf(t *testing.T, replicas []*replica) *client {
	t.Helper()
	c, err := newClient(t.Context(), "http://"+replicas[0].host+Path)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	c.http = &http.Client{Transport: &spread{replicas: replicas[1:], over: transport}}
	return c
}

// forwarded is how many requests the replica has passed on.
func (r *replica) forwarded() uint64 { return r.peers.relay.Forwards(relay.Answered) }

func (r *replica) dials() (sum uint64) {
	for _, outcome := range relay.DialOutcomes() {
		sum += r.peers.relay.Dials(outcome)
	}
	return sum
}

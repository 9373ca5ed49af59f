package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/slipway-mcp/slipway/bench/report"
	"github.com/slipway-mcp/slipway/test/npm"
	"github.com/slipway-mcp/slipway/test/servers"
)

// The names of systems, as -only and the results have them.
const (
	pipe            = "L1"
	netHTTP         = "L2"
	naive           = report.Base
	naiveAgain      = "L3-again"
	adapter         = "adapter"
	adapterCold     = "adapter-no-spare"
	adapterLauncher = "adapter-launcher"
	launcherCold    = "adapter-launcher-no-spare"
	adapterShared   = "adapter-shared"
	adapterNoReplay = "adapter-no-replay"
	adapterAuth     = "adapter-auth"
	// naiveForwarded and adapterForwarded have one hop between the client and the session's program, and
	// adapterPeers could have one.
	naiveForwarded   = "L3f"
	adapterForwarded = "adapter-forwarded"
	adapterPeers     = "adapter-peers"
	sdkBridge        = "sdk-bridge"
	supergateway     = "supergateway"
	mcpProxy         = "mcp-proxy"
	mcpProxyStore    = "mcp-proxy-store"
)

// system is something to be measured.
type system struct {
	report.System
	// start starts it; there is nothing to start for the pipe.
	start func(ctx context.Context, t *tools) (*running, error)
}

var systems = []system{
	{report.System{Name: pipe, Title: "L1: a pipe, no HTTP", Kind: report.Bound}, startNothing},
	{report.System{Name: netHTTP, Title: "L2: net/http alone", Kind: report.Bound}, program("netecho", false)},
	{report.System{Name: naive, Title: "L3: net/http and one pipe round trip", Kind: report.Bound}, program("naive", true)},
	{report.System{Name: naiveAgain, Title: "L3 again (A/A)", Kind: report.Bound}, program("naive", true)},
	{report.System{Name: naiveForwarded, Title: "L3f: L3 behind a bare relay", Kind: report.Bound}, startRelay},
	{report.System{Name: adapter, Title: "adapter", Kind: report.Ours}, sidecar()},
	{report.System{Name: adapterCold, Title: "adapter, no spare", Kind: report.Ours}, sidecar("--warm", "0")},
	{report.System{Name: adapterLauncher, Title: "adapter and launcher", Kind: report.Ours}, sidecarAndLauncher()},
	{report.System{Name: launcherCold, Title: "adapter and launcher, no spare", Kind: report.Ours}, sidecarAndLauncher("--warm", "0")},
	{report.System{Name: adapterShared, Title: "adapter, Shared", Kind: report.Ours}, sidecar("--isolation", "Shared")},
	{report.System{Name: adapterNoReplay, Title: "adapter, no replay", Kind: report.Ours}, sidecar("--limit-replay-bytes", "0")},
	{report.System{Name: adapterAuth, Title: "adapter, auth", Kind: report.Ours}, sidecarWithAuth},
	{report.System{Name: adapterPeers, Title: "adapter, with a port for peers", Kind: report.Ours}, sidecarAmongPeers},
	{report.System{Name: adapterForwarded, Title: "adapter, at another pod", Kind: report.Ours}, sidecarsForwarding},
	{report.System{Name: sdkBridge, Title: "bridge on the Go SDK", Kind: report.Control}, program("sdkbridge", true)},
	{report.System{Name: supergateway, Title: "supergateway", Kind: report.Peer}, startSupergateway},
	{report.System{Name: mcpProxy, Title: "mcp-proxy, no store", Kind: report.Peer}, startMCPProxy("--no-eventStore")},
	{report.System{Name: mcpProxyStore, Title: "mcp-proxy", Kind: report.Peer}, startMCPProxy()},
}

// isNode says whether a system has a JIT that wants to be warm.
func (s system) isNode() bool { return s.Kind == report.Peer }

// tools are the programs that take part, built and installed.
type tools struct {
	dir     string       // of our own programs
	modules string       // node_modules of the peers
	demoted bool         // systems run as the user nobody, because the benchmark runs as root
	cpus    *unix.CPUSet // that systems are pinned to; nil for all
}

// programs are ours, by the directory that they are built from.
var programs = []string{"bench/bounds/netecho", "bench/bounds/naive", "bench/bounds/relay", "bench/peers/sdkbridge", "cmd/sidecar", "cmd/launcher", "test/servers/echo"}

// prepare builds what is ours into a directory and installs the peers into the cache.
func prepare(ctx context.Context, dir string, withPeers bool) (*tools, error) {
	t := &tools{dir: dir}
	// As images have them: static.
	if err := os.Setenv("CGO_ENABLED", "0"); err != nil {
		return nil, fmt.Errorf("build programs: %w", err)
	}
	if err := servers.BuildAll(ctx, dir, programs...); err != nil {
		return nil, err
	}
	if withPeers {
		root, err := moduleRoot(ctx)
		if err != nil {
			return nil, err
		}
		if t.modules, err = npm.Install(ctx, filepath.Join(root, "bench", "peers")); err != nil {
			return nil, err
		}
	}
	return t, t.openToNobody()
}

func (t *tools) path(name string) string { return filepath.Join(t.dir, name) }

func (t *tools) echo() string { return t.path("echo") }

func startNothing(_ context.Context, t *tools) (*running, error) {
	return &running{command: t.echo()}, nil
}

// program is one of the small ones, which say where they listen.
func program(name string, withServer bool) func(context.Context, *tools) (*running, error) {
	return func(ctx context.Context, t *tools) (*running, error) {
		var args []string
		if withServer {
			args = append(args, t.echo())
		}
		return t.startListening(ctx, t.path(name), args...)
	}
}

// sidecarFlags are the defaults, but for ports and for as many sessions as we open.
func sidecarFlags(flags []string) []string {
	return append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--max-sessions", "2000"}, flags...)
}

func sidecar(flags ...string) func(context.Context, *tools) (*running, error) {
	return func(ctx context.Context, t *tools) (*running, error) {
		return t.startListening(ctx, t.path("sidecar"), append(sidecarFlags(flags), "--", t.echo())...)
	}
}

// sidecarAndLauncher is how it is in a pod: two programs, and a socket over which the
// launcher passes the pipes.
func sidecarAndLauncher(flags ...string) func(context.Context, *tools) (*running, error) {
	return func(ctx context.Context, t *tools) (*running, error) {
		socket := filepath.Join(t.home(), "socket")
		r, err := t.startListening(ctx, t.path("sidecar"), append(sidecarFlags(flags), "--socket", socket)...)
		if err != nil {
			return nil, err
		}
		r.helper, err = t.startProcess(t.path("launcher"), "--socket", socket, "--", t.echo())
		if err != nil {
			r.stop()
			return nil, err
		}
		return r, nil
	}
}

func startSupergateway(ctx context.Context, t *tools) (*running, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	return t.startAt(ctx, port, "node", filepath.Join(t.modules, "supergateway", "dist", "index.js"), "--stdio", t.echo(),
		"--outputTransport", "streamableHttp", "--stateful", "--logLevel", "none", "--port", strconv.Itoa(port))
}

func startMCPProxy(flags ...string) func(context.Context, *tools) (*running, error) {
	return func(ctx context.Context, t *tools) (*running, error) {
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		args := append([]string{filepath.Join(t.modules, ".bin", "mcp-proxy"), "--host", "127.0.0.1", "--port", strconv.Itoa(port), "--server", "stream"}, flags...)
		return t.startAt(ctx, port, "node", append(args, "--", t.echo())...)
	}
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/memorylimit"
	"github.com/slipway-mcp/slipway/internal/sidecar"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/audit"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/settings"
	"github.com/slipway-mcp/slipway/internal/version"
)

// options are the flags outside the adapter's configuration.
type options struct {
	listen, adminListen, peerListen string
	upstream                        string
	socket                          string
	serverUIDs                      []uint32 // nil allows every user
	keysDir                         string
	settingsDir                     string
	accessFile                      string
	podUID, podIP                   string
	verbosity                       int
	level                           zap.AtomicLevel
	command                         []string
}

func serve(ctx context.Context, args []string) error {
	c := config.Defaults()
	var o options
	flags := newFlags("adapter serve")
	bindOptions(flags, &o)
	c.BindFlags(flags)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return explain(os.Stdout, flags)
		}
		return flagError(err)
	}
	o.command = flags.Args()
	if err := errors.Join(checkServer(&c, o), complete(&c, &o)); err != nil {
		return &usageError{err, serveCommand}
	}
	return serveOn(ctx, c, o)
}

// newLogger returns a logger, and its level, which may change while the adapter runs.
func newLogger(verbosity int) (logr.Logger, zap.AtomicLevel, error) {
	level := zap.NewAtomicLevelAt(levelOf(verbosity))
	if verbosity < 0 || verbosity > adapterapi.MaxVerbosity {
		return logr.Logger{}, level, fmt.Errorf("verbosity %d: want 0 to %d", verbosity, adapterapi.MaxVerbosity)
	}
	config := zap.NewProductionConfig()
	config.Level = level
	config.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	config.DisableStacktrace = true
	config.DisableCaller = true
	log, err := config.Build()
	if err != nil {
		return logr.Logger{}, level, fmt.Errorf("make logger: %w", err)
	}
	return zapr.NewLogger(log), level, nil
}

func levelOf(verbosity int) zapcore.Level { return zapcore.Level(-verbosity) } //nolint:gosec // checked: 0 to 5

// spareThreads is how many threads the adapter makes at its start. Under load it needs
// more threads than there are processors, and it cannot add any once the pod has reached
// its limit of processes.
const spareThreads = 32

// heapPercent is how much of its memory limit the adapter uses. The budget for messages is half of
// the limit, so the rest is garbage and the adapter's own memory.
const heapPercent = 90

func serveOn(ctx context.Context, c config.Config, o options) (err error) {
	launcher.ParkThreads(spareThreads)
	memorylimit.Set(c.MemoryLimit, heapPercent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ports, err := listen(ctx, o)
	if err != nil {
		return err
	}
	local := netip.MustParseAddrPort(ports.Clients.Addr().String())
	// By default a name in the Host header must be localhost: any other name that resolves to a
	// loopback address is DNS rebinding. The same holds in a pod until it has valid settings,
	// which list its hosts.
	if len(c.Origins.Hosts) == 0 && (local.Addr().IsLoopback() || o.settingsDir != "") {
		c.Origins.Hosts = []string{"localhost"}
	}
	c.Settings = liveSettings(c, o)
	if c.Access, err = newGate(c, o); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // nothing may read the standard output, which has audit lines only
	c.Audit = audit.New(os.Stdout, func(err error) { c.Log.Error(err, "Cannot write audit lines; trying again") })
	defer closeAudit(c)
	if c.Owner.Address, err = ownAddress(o.podIP, ports); err != nil {
		return err
	}
	// The adapter needs the starter, and the starter's drain hook needs the adapter.
	var adapter *sidecar.Adapter
	made := make(chan struct{})
	starter, closer, err := newStarter(c, o, func(ctx context.Context) {
		<-made
		adapter.Leave()
		select {
		case <-adapter.Drained():
		case <-ctx.Done():
		}
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closer()) }()
	adapter = sidecar.New(starter, c)
	close(made)
	drains := make(chan os.Signal, 1)
	signal.Notify(drains, drainSignal)
	go func() {
		<-drains
		adapter.Leave()
	}()
	ctx, end := context.WithCancel(ctx)
	defer end()
	go obey(signals, end, adapter)
	c.Log.Info("Serving", "url", "http://"+local.String()+sidecar.Path, "admin", "http://"+ports.Admin.Addr().String(), "version", version.Get().Version)
	return adapter.Serve(ctx, ports)
}

// liveSettings returns the settings of the flags, until the adapter has a document.
func liveSettings(c config.Config, o options) *settings.Live {
	live := settings.New(settings.Options{
		Start: settings.Values{Origins: c.Origins, Verbosity: o.verbosity}, Dir: o.settingsDir,
		Changed: func(values *settings.Values) { o.level.SetLevel(levelOf(values.Verbosity)) },
		Log:     c.Log.WithName("settings"),
	})
	live.Reload() // so that they hold for the first request
	return live
}

// newGate returns what decides who may call what. In a pod, the manager writes and signs the access
// document, and nothing is served without one.
func newGate(c config.Config, o options) (*access.Gate, error) {
	gate := access.Options{File: o.accessFile, Required: o.accessFile != "", Log: c.Log.WithName("access")}
	if o.accessFile == "" && o.settingsDir != "" && c.Keys.Shared() {
		gate.File, gate.Required, gate.Ring = filepath.Join(o.settingsDir, adapterapi.AccessFile), true, c.Keys.Ring
	}
	made := access.New(gate)
	if err := made.Ready(); o.accessFile != "" && err != nil {
		return nil, fmt.Errorf("--access-file: %w", err)
	}
	return made, nil
}

// auditTimeout is for the last audit lines to be written.
const auditTimeout = 5 * time.Second

func closeAudit(c config.Config) {
	ctx, cancel := context.WithTimeout(context.Background(), auditTimeout)
	defer cancel()
	if err := c.Audit.Close(ctx); err != nil {
		c.Log.Error(err, "Lost audit lines")
	}
}

// obey drains and ends the adapter at the first signal. At the second one it stops waiting for calls in
// flight. The third one ends the program, as signals do by default.
func obey(signals chan os.Signal, end func(), adapter *sidecar.Adapter) {
	<-signals
	end()
	<-signals
	signal.Stop(signals)
	adapter.Hurry()
}

// listen opens the ports of the adapter.
func listen(ctx context.Context, o options) (ports sidecar.Ports, err error) {
	for _, port := range []struct {
		flag, address string
		opened        *net.Listener
	}{
		{"--listen", o.listen, &ports.Clients}, {"--admin-listen", o.adminListen, &ports.Admin}, {"--peer-listen", o.peerListen, &ports.Peers},
	} {
		if port.address == "" && port.opened == &ports.Peers {
			continue
		}
		if *port.opened, err = listener.Listen(ctx, port.address); err != nil {
			return sidecar.Ports{}, fmt.Errorf("%s: %w", port.flag, err) // the program ends, and closes the others
		}
	}
	return ports, nil
}

// ownAddress returns where other pods reach this one. Without a port for them, it is the port for clients.
func ownAddress(podIP string, ports sidecar.Ports) (netip.AddrPort, error) {
	own := ports.Clients
	if ports.Peers != nil {
		own = ports.Peers
	}
	local := netip.MustParseAddrPort(own.Addr().String())
	if podIP == "" {
		return local, nil
	}
	address, err := netip.ParseAddr(podIP)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("pod-ip: %w", err)
	}
	return netip.AddrPortFrom(address, local.Port()), nil
}

// newStarter returns what starts the server's processes: a launcher in another container,
// or this process.
func newStarter(c config.Config, o options, drained func(context.Context)) (child.Starter, func() error, error) {
	if o.socket == "" && len(o.command) == 0 {
		return nil, func() error { return nil }, nil // Kubernetes, or the user, starts a server that speaks HTTP
	}
	if o.socket == "" {
		if _, err := exec.LookPath(o.command[0]); err != nil {
			return nil, nil, fmt.Errorf("run server's command: %w", err)
		}
		direct, err := launcher.NewDirect(launcher.Options{Command: o.command})
		if err != nil {
			return nil, nil, fmt.Errorf("run server's command: %w", err)
		}
		return direct, direct.Close, nil
	}
	host, err := launcher.Listen(o.socket, launcher.HostOptions{
		AllowedUIDs: o.serverUIDs,
		Drain:       drained,
		Logf: func(format string, args ...any) {
			c.Log.Info("Launcher connection", "event", fmt.Sprintf(format, args...))
		},
	})
	if err != nil {
		return nil, nil, err
	}
	return patientStarter{host}, func() error {
		if err := host.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}, nil
}

// launcherPatience is how long a start waits for a launcher. The server's container
// starts after the sidecar's, and the kubelet may restart it.
const launcherPatience = 5 * time.Second

// patientStarter starts processes by a launcher, and waits for the launcher to connect.
type patientStarter struct{ *launcher.Host }

func (s patientStarter) Spawn(ctx context.Context, label string) (*launcher.Process, error) {
	waiting, cancel := context.WithTimeout(ctx, launcherPatience)
	defer cancel()
	if s.WaitConnected(waiting) != nil {
		return nil, launcher.ErrNoLauncher
	}
	return s.Host.Spawn(ctx, label)
}

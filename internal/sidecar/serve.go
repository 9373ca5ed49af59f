package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// Listen opens a port that others connect to. Peers that vanish without a word
// are noticed by the kernel.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	return listen(ctx, address, front.KeepAliveInterval, front.WriteTimeout)
}

// listen has the kernel ask a peer that was silent for so long whether it is there,
// and give up one that does not acknowledge what it was sent in time.
func listen(ctx context.Context, address string, silence, timeout time.Duration) (net.Listener, error) {
	config := net.ListenConfig{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence, Interval: silence / 3, Count: 3},
		Control: func(_, _ string, raw syscall.RawConn) error {
			const tcpUserTimeout = 18 // Connections inherit it from the listener.
			var setErr error
			err := raw.Control(func(fd uintptr) {
				setErr = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(timeout.Milliseconds()))
			})
			return errors.Join(err, setErr)
		},
	}
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err // it names the address
	}
	return listener, nil
}

// Serve serves clients and administrators until the context ends, then drains:
// calls in flight may finish within the drain timeout, and no new session is opened.
func (a *Adapter) Serve(ctx context.Context, clients, administrators net.Listener) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	// After the drain the server's container ends, and no process is missed any more.
	useful, drained := context.WithCancel(background)
	var running sync.WaitGroup
	running.Go(func() { a.backend.run(useful) })
	running.Go(func() { a.keeper.Run(useful) })
	running.Go(func() { a.findEra(useful) })
	running.Go(func() { a.sessions.Run(background) })
	running.Go(func() { giveBack(background) })
	running.Go(func() { a.settle(background) })
	running.Go(func() {
		a.drainWhenTold(background)
		drained()
	})

	clientServer, adminServer := newServer(a.clients), newServer(a.admin)
	errorLog := log.New(httpLog{a.config.Log}, "", 0)
	clientServer.ErrorLog, adminServer.ErrorLog = errorLog, errorLog
	patient, adminPatient := newPatientListener(clients, a.config.connections()), newPatientListener(administrators, adminConnections)
	a.connections.Store(patient)
	running.Go(func() { patient.run(background) })
	running.Go(func() { adminPatient.run(background) })
	running.Go(func() { a.config.Keys.Run(background, a.config.Log.WithName("keys")) })
	running.Go(func() { a.config.Settings.Run(background) })
	failed := make(chan error, 2)
	go func() { failed <- clientServer.Serve(patient) }()
	go func() { failed <- adminServer.Serve(adminPatient) }()

	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("serve: %w", err)
	case <-a.draining:
		<-a.drained
		err = awaitEnd(ctx)
	case <-ctx.Done():
		a.Drain()
		<-a.drained
	}
	// Answers that were given a moment ago are still on their way.
	closing, cancel := context.WithTimeout(background, headerTimeout)
	defer cancel()
	defer context.AfterFunc(a.hurried, func() { _ = clientServer.Close() })()
	err = errors.Join(err, clientServer.Shutdown(closing), adminServer.Close())
	stop()
	running.Wait()
	a.backend.eras.close()
	a.backend.close()
	runtime.KeepAlive(headroom)
	return err
}

// awaitEnd waits to be told to end after a drain. A drain that nothing follows was
// not that of a pod that goes away: a container was restarted in place, or somebody in
// the server's container asked for it. Whoever runs the adapter then starts it afresh.
func awaitEnd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(drainLinger):
		return fmt.Errorf("serve: drained %s ago and not told to end", drainLinger)
	}
}

func newServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleConnection,
		MaxHeaderBytes:    headerBytes,
		ConnState:         noteState,
		ConnContext:       watchClients,
	}
}

// httpLog has what net/http logs, such as panics of handlers, look like all else that the
// adapter logs.
type httpLog struct{ log logr.Logger }

func (l httpLog) Write(text []byte) (int, error) {
	l.log.Info("The HTTP server has a problem", "text", strings.TrimSpace(string(text)))
	return len(text), nil
}

// Leave is for an instance that goes away. It returns at once. The adapter serves
// everything, new sessions included, for the settle time: until then proxies and
// clients may not know that there are other instances. Then it drains. An adapter that was
// never ready has no clients, and drains at once. Further calls do nothing.
func (a *Adapter) Leave() { a.startLeave.Do(func() { close(a.leaving) }) }

// Drain begins to drain, and returns at once. Further calls do nothing.
func (a *Adapter) Drain() {
	a.Leave()
	a.startDrain.Do(func() {
		// Before any answer says that the instance goes away: a session that is opened after
		// that would end at once.
		a.sessions.Refuse()
		close(a.draining)
	})
}

// Hurry has a drain wait for nothing any more: calls in flight are answered with an
// error. Processes still end gently.
func (a *Adapter) Hurry() { a.hurry() }

// Drained is closed when no session is left after a drain was begun.
func (a *Adapter) Drained() <-chan struct{} { return a.drained }

// settle drains when it is time to, after the adapter was told to leave.
func (a *Adapter) settle(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-a.leaving:
	}
	if state, _ := a.keeper.State(); state.Catalog != nil && a.config.SettleTime > 0 {
		a.config.Log.Info("Going away; serving clients until they know", "for", a.config.SettleTime.String())
		select {
		case <-ctx.Done():
			return
		case <-a.draining:
		case <-a.hurried.Done():
		case <-time.After(a.config.SettleTime):
		}
	}
	a.Drain()
}

func (a *Adapter) drainWhenTold(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-a.draining:
	}
	a.config.Log.Info("Draining; a second SIGINT or SIGTERM ends at once", "sessions", a.sessions.Len(), "timeout", a.config.DrainTimeout.String())
	defer close(a.drained)
	ctx, cancel := context.WithTimeout(ctx, a.config.DrainTimeout)
	defer cancel()
	defer context.AfterFunc(a.hurried, cancel)()
	a.backend.eras.stateless.Refuse()
	a.backend.eras.drain(ctx, a.sessions.Drain)
}

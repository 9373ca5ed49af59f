package launcher

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	// DefaultSocket is where the adapter listens unless told otherwise.
	DefaultSocket = "/slipway/adapter.sock"

	dialPause     = 10 * time.Millisecond  // at first: it delays the readiness of a pod by no more
	dialPauseMax  = 250 * time.Millisecond // while the kubelet backs off from an adapter
	dialEagerness = 5 * time.Second        // how long the pause stays short
	rejectPause   = time.Second            // a rejection does not go away quickly

	maxStarting = 64 // starts at a time; more requests wait in the socket
	farewell    = time.Second
)

// launcher is the end of the socket in the server's container.
type launcher struct {
	socket string
	super  *supervisor
	grace  time.Duration

	mu       sync.Mutex
	leaving  bool           // no request begins any more
	requests sync.WaitGroup // from the request to the end of the lifeline
}

// Run is the launcher: it serves one adapter after the other until the context ends, and
// then ends every process in order. It expects to be PID 1, or at least that no other
// code in its process starts processes.
func Run(ctx context.Context, socket string, opts Options) error {
	ParkThreads(spareThreads)
	super, err := newSupervisor(opts, true)
	if err != nil {
		return err
	}
	defer super.closeLog()
	l := &launcher{socket: socket, super: super, grace: super.opts.Grace}
	// The connections outlive ctx, so that the launcher can report the end of each
	// process.
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	defer disconnect()
	var serving sync.WaitGroup
	serving.Go(func() { l.connect(connected) })
	<-ctx.Done()
	super.sink.logf("ending all sessions")
	err = super.close()
	l.leave()
	disconnect()
	serving.Wait()
	return err
}

// begin counts a request, unless the launcher is leaving.
func (l *launcher) begin(request func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leaving {
		l.requests.Go(request)
	}
	return !l.leaving
}

// leave waits, within limits, until the adapter has the answer to each request and the
// end of each process.
func (l *launcher) leave() {
	l.mu.Lock()
	l.leaving = true
	l.mu.Unlock()
	done := make(chan struct{})
	go func() {
		l.requests.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(farewell):
	}
}

// connect serves adapters until the context ends.
func (l *launcher) connect(ctx context.Context) {
	pause, since := dialPause, time.Now()
	complained := false
	for ctx.Err() == nil {
		control, err := dial(ctx, l.socket)
		if err == nil {
			err = l.serve(ctx, control)
			l.super.endAll(l.grace)
			if ctx.Err() == nil {
				l.super.sink.logf("adapter gone: %v", err)
			}
			pause, since, complained = dialPause, time.Now(), false
			if errors.Is(err, errRejected) {
				pause = rejectPause
			}
		} else if time.Since(since) > dialEagerness {
			pause = min(pause+pause/2, dialPauseMax)
			if !complained {
				l.super.sink.logf("still waiting for the adapter: %v", err)
				complained = true
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

var errRejected = errors.New("the adapter rejects this launcher")

// serve works for one adapter until its control connection ends.
func (l *launcher) serve(ctx context.Context, control *conn) error {
	defer func() { _ = control.Close() }()
	defer context.AfterFunc(ctx, func() { _ = control.Close() })()
	epoch := rand.Text()
	if err := control.send(message{Kind: kindHello, Version: protocolVersion, Role: roleControl, Epoch: epoch, TellsUsage: true}); err != nil {
		return unwelcome(err)
	}
	if err := welcomed(control); err != nil {
		return err
	}
	l.super.sink.logf("adapter connected")
	slots := make(chan struct{}, maxStarting)
	for {
		m, err := control.receive()
		if err != nil {
			return err
		}
		switch m.Kind {
		case kindSpawn:
		case kindUsage:
			used := l.super.limits.usage()
			if err := control.send(message{Kind: kindUsage, ID: m.ID, Memory: &Memory{used.memory, used.memoryLimit}}); err != nil {
				return err
			}
			continue
		default:
			return fmt.Errorf("unexpected %q from the adapter", m.Kind)
		}
		slots <- struct{}{}
		if !l.begin(func() {
			c, life := l.spawn(ctx, control, epoch, m)
			<-slots
			if c != nil {
				l.attend(c, life)
			}
		}) {
			return nil
		}
	}
}

// unwelcome is the error for an adapter that closes the connection without an answer. It
// may accept connections of another user only, so that the launcher backs off.
func unwelcome(err error) error {
	return fmt.Errorf("%w: it gave no welcome (%w); does this container run as the user that the adapter expects? It is number %d",
		errRejected, err, os.Getuid())
}

func welcomed(control *conn) error {
	m, err := control.receiveWithin(helloTimeout)
	switch {
	case err != nil:
		return unwelcome(err)
	case m.Kind == kindReject:
		return fmt.Errorf("%w: %s", errRejected, brief(m.Text))
	case m.Kind != kindWelcome:
		return fmt.Errorf("%w: answered %q to a hello", errRejected, m.Kind)
	}
	return nil
}

// spawn answers one request. It dials the lifeline first, because the adapter could not
// end a process without one.
func (l *launcher) spawn(ctx context.Context, control *conn, epoch string, request message) (*child, *conn) {
	life, err := dial(ctx, l.socket)
	if err != nil {
		_ = control.send(failure(request.ID, &RefusedError{ReasonDescriptors, err.Error()}))
		return nil, nil
	}
	c, err := l.super.start(request.Label)
	if err != nil {
		_ = life.Close()
		_ = control.send(failure(request.ID, err))
		return nil, nil
	}
	hello := message{Kind: kindHello, Version: protocolVersion, Role: roleProcess, Epoch: epoch, ID: request.ID, PID: c.pid}
	err = life.send(hello, c.stdin, c.stdout)
	closeAll([]int{c.stdin, c.stdout})
	if err != nil {
		_ = life.Close() // upon which attend ends the process
	}
	return c, life
}

// attend keeps a lifeline until the process has ended.
func (l *launcher) attend(c *child, life *conn) {
	defer func() { _ = life.Close() }()
	l.requests.Go(func() {
		for {
			m, err := life.receive()
			if err != nil || m.Kind != kindStop {
				c.end(l.grace)
				return
			}
			c.end(time.Duration(min(max(m.Grace, 0), maxGrace)) * time.Millisecond)
		}
	})
	<-c.exited.done
	_ = life.send(message{Kind: kindExit, Exit: newEnded(c.exited.exit)})
}

// Drain asks the adapter to hold the end of the server's container until its sessions
// have ended. It returns nil at once when no adapter answers, because then there are no
// sessions to wait for.
func Drain(ctx context.Context, socket string) error {
	c, err := dial(ctx, socket)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		// The dialer looks at the clock, and may see the deadline before the context does.
		return fmt.Errorf("reach the adapter: %w", context.DeadlineExceeded)
	case err != nil:
		return ctx.Err()
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if err := c.send(message{Kind: kindHello, Version: protocolVersion, Role: roleDrain}); err != nil {
		return ctx.Err()
	}
	m, err := c.receive()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("wait for the drain: %w", ctx.Err())
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("wait for the drain: %w", err)
	case m.Kind != kindDrained:
		return fmt.Errorf("wait for the drain: answered %q: %s", m.Kind, brief(m.Text))
	}
	return nil
}

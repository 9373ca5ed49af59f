package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	socketMode   = 0o666 // the two containers share no group; the peer's user is checked instead
	maxStrangers = 64    // connections that have not said hello
	maxDrains    = 16

	// spawnTimeout bounds a start, whatever the caller's context says: the answer
	// is up to a program that is not trusted.
	spawnTimeout = 30 * time.Second
)

// HostOptions say who may connect and what happens at the end of the pod.
type HostOptions struct {
	// AllowedUIDs are the users whose connections are accepted; nil is anybody.
	AllowedUIDs []uint32

	// Drain holds the server's preStop hook: it returns when the server may go, or
	// when the context ends because the hook has given up. Nil lets it go at once.
	Drain func(ctx context.Context)

	// Logf takes what is worth knowing about connections; nil drops it.
	Logf func(format string, args ...any)
}

// Host is the adapter's end of the socket.
type Host struct {
	opts     HostOptions
	listener *net.UnixListener
	ctx      context.Context // ends with the host
	cancel   context.CancelFunc
	serving  sync.WaitGroup
	strange  chan struct{} // a slot for each connection that has not said hello
	drains   chan struct{} // a slot for each hook

	mu       sync.Mutex
	link     *link         // the launcher, or nil
	welcomed bool          // it has been told so, and may be sent requests
	changed  chan struct{} // closed when there is a launcher to send requests to
}

// Listen binds the socket, in place of one that a predecessor left behind.
func Listen(socket string, opts HostOptions) (*Host, error) {
	if opts.Logf == nil {
		opts.Logf = func(string, ...any) {}
	}
	if opts.Drain == nil {
		opts.Drain = func(context.Context) {}
	}
	if info, err := os.Lstat(socket); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("listen on %s: there is a file that is not a socket", socket)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}
	if err := os.Chmod(socket, socketMode); err != nil {
		return nil, errors.Join(fmt.Errorf("open the socket to the server's user: %w", err), listener.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &Host{
		opts:     opts,
		listener: listener,
		ctx:      ctx,
		cancel:   cancel,
		strange:  make(chan struct{}, maxStrangers),
		drains:   make(chan struct{}, maxDrains),
		changed:  make(chan struct{}),
	}
	h.serving.Go(h.accept)
	return h, nil
}

// Close ends all connections. The launcher ends every process then.
func (h *Host) Close() error {
	h.cancel()
	err := h.listener.Close()
	h.serving.Wait()
	return err
}

// Connected says whether a launcher is there.
func (h *Host) Connected() bool {
	link, _ := h.current()
	return link != nil
}

// WaitConnected waits for a launcher.
func (h *Host) WaitConnected(ctx context.Context) error {
	for {
		link, changed := h.current()
		if link != nil {
			return nil
		}
		select {
		case <-changed:
		case <-h.ctx.Done():
			return net.ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("wait for the launcher: %w", ctx.Err())
		}
	}
}

// Spawn starts one process. The label goes in front of its lines in the log. The
// error is ErrNoLauncher, a *RefusedError, a *StartError or the context's.
func (h *Host) Spawn(ctx context.Context, label string) (*Process, error) {
	link, _ := h.current()
	if link == nil {
		return nil, ErrNoLauncher
	}
	ctx, cancel := context.WithTimeout(ctx, spawnTimeout)
	defer cancel()
	id, answer := link.request()
	if err := link.conn.send(message{Kind: kindSpawn, ID: id, Label: cleanLabel(label)}); err != nil {
		link.forget(id)
		link.close()
		return nil, fmt.Errorf("%w: %w", ErrNoLauncher, err)
	}
	select {
	case got := <-answer:
		return got.process, got.err
	case <-link.gone:
	case <-ctx.Done():
	}
	link.forget(id)
	// The answer may have come at the same moment.
	select {
	case got := <-answer:
		if got.process != nil {
			got.process.abandon()
		}
	default:
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start process %s: %w", label, err)
	}
	return nil, ErrNoLauncher
}

// current is the launcher that requests can be sent to, or nil and when to look
// again.
func (h *Host) current() (*link, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.welcomed {
		return nil, h.changed
	}
	return h.link, nil
}

// claim makes this launcher the one, unless there is one.
func (h *Host) claim(l *link) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link != nil {
		return false
	}
	h.link = l
	return true
}

// publish makes the claimed launcher known, once its welcome is on the way: no
// request may overtake that.
func (h *Host) publish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.welcomed = true
	close(h.changed)
}

// release gives the place free.
func (h *Host) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.welcomed {
		h.changed = make(chan struct{})
	}
	h.link, h.welcomed = nil, false
}

func (h *Host) accept() {
	for {
		select {
		case h.strange <- struct{}{}:
		case <-h.ctx.Done():
			return
		}
		opened, err := h.listener.AcceptUnix()
		if err != nil {
			<-h.strange
			if h.ctx.Err() != nil {
				return
			}
			h.opts.Logf("accept a connection: %v", err)
			select {
			case <-time.After(100 * time.Millisecond): // out of descriptors, most likely
			case <-h.ctx.Done():
			}
			continue
		}
		h.serving.Go(func() { h.serve(&conn{UnixConn: opened}) })
	}
}

// allowed checks who is at the other end.
func (h *Host) allowed(c *conn) error {
	if h.opts.AllowedUIDs == nil {
		return nil
	}
	uid, err := c.peerUID()
	if err != nil {
		return fmt.Errorf("look at the peer: %w", err)
	}
	if !slices.Contains(h.opts.AllowedUIDs, uid) {
		return fmt.Errorf("user %d may not connect", uid)
	}
	return nil
}

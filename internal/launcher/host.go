package launcher

import (
	"cmp"
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
	socketMode   = 0o666 // the containers share no group; allowed checks the user of the peer instead
	maxStrangers = 64    // connections without a hello
	maxDrains    = 16

	// spawnTimeout bounds a start, whatever the caller's context says, because the
	// adapter does not trust the program that answers.
	spawnTimeout = 30 * time.Second
)

// HostOptions say which users may connect, and what happens at the end of the pod.
type HostOptions struct {
	// AllowedUIDs are the users whose connections the Host accepts; nil is every user.
	AllowedUIDs []uint32

	// Drain holds the server's preStop hook. It returns when the server's container may
	// end, or when the context ends because the hook has given up. Nil lets the container
	// end at once.
	Drain func(ctx context.Context)

	// Logf logs how connections end; nil drops it.
	Logf func(format string, args ...any)
}

// Host is the adapter's end of the socket.
type Host struct {
	opts     HostOptions
	listener *net.UnixListener
	ctx      context.Context // ends with the host
	cancel   context.CancelFunc
	serving  sync.WaitGroup
	strange  chan struct{} // a slot for each connection without a hello
	drains   chan struct{} // a slot for each hook

	mu       sync.Mutex
	link     *link         // the launcher, or nil
	welcomed bool          // the launcher has its welcome, and takes requests
	changed  chan struct{} // closed when a launcher is ready for requests
}

// Listen binds the socket, and removes one that an earlier adapter has left behind.
func Listen(socket string, opts HostOptions) (*Host, error) {
	if opts.Logf == nil {
		opts.Logf = func(string, ...any) {}
	}
	if opts.Drain == nil {
		opts.Drain = func(context.Context) {}
	}
	if info, err := os.Lstat(socket); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("listen on %s: the file there is not a socket", socket)
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

// Close ends all connections, upon which the launcher ends every process.
func (h *Host) Close() error {
	h.cancel()
	err := h.listener.Close()
	h.serving.Wait()
	return err
}

// Connected says whether a launcher is connected.
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
		if got.process == nil && got.err == nil {
			got.err = &StartError{Message: "the launcher answers another question"}
		}
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

// usageTimeout is for a launcher to read two files.
const usageTimeout = time.Second

// Memory asks the launcher what the server's container uses. The error is ErrNoLauncher if no launcher
// is connected, or if the one that is does not tell.
func (h *Host) Memory(ctx context.Context) (Memory, error) {
	link, _ := h.current()
	if link == nil || !link.usage {
		return Memory{}, ErrNoLauncher
	}
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	id, answer := link.request()
	defer link.forget(id)
	if err := link.conn.send(message{Kind: kindUsage, ID: id}); err != nil {
		return Memory{}, fmt.Errorf("%w: %w", ErrNoLauncher, err)
	}
	select {
	case got := <-answer:
		if got.memory == nil {
			return Memory{}, fmt.Errorf("ask for the memory of the server: %w", cmp.Or(got.err, errNoMemory))
		}
		return *got.memory, nil
	case <-link.gone:
		return Memory{}, ErrNoLauncher
	case <-ctx.Done():
		return Memory{}, fmt.Errorf("ask for the memory of the server: %w", ctx.Err())
	}
}

var errNoMemory = errors.New("the launcher does not say")

// current returns the launcher that takes requests. If there is none it returns nil, and
// a channel that closes when to look again.
func (h *Host) current() (*link, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.welcomed {
		return nil, h.changed
	}
	return h.link, nil
}

// claim makes this the connected launcher, unless another is.
func (h *Host) claim(l *link) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link != nil {
		return false
	}
	h.link = l
	return true
}

// publish lets Spawn use the claimed launcher. The welcome is on the way by then, because
// no request may overtake it.
func (h *Host) publish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.welcomed = true
	close(h.changed)
}

// release lets another launcher connect.
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

// allowed checks the user at the other end.
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

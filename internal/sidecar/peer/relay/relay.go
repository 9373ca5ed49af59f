// Package relay carries a request to another pod of the server and its answer back, without holding
// either.
//
// The goroutine that serves the client also writes the request and reads the answer, over HTTP/1.1
// on pooled TLS connections. http.Transport has two goroutines for each connection, and hands every
// request and answer from one to the other, which is a quarter of what a hop costs. Each request has a
// connection to itself, so that a client that reads slowly stops only its own answer.
//
// The package knows nothing of MCP, of sessions, or of which pod is dead. It says what has become of a
// request, and the caller decides what that means.
package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// Defaults of the Limits.
const (
	DefaultRequests    = 4096
	DefaultStreams     = 1024
	DefaultIdle        = 64
	DefaultIdleTimeout = time.Minute // owners keep idle connections for two
	// DefaultUnusedTimeout is shorter than owners wait for the first request of a connection, which is 10 s.
	DefaultUnusedTimeout = 5 * time.Second
	DefaultDialTimeout   = 1500 * time.Millisecond
	DefaultPingInterval  = 2 * time.Second
	DefaultPingTimeout   = 3 * time.Second
	DefaultPingPatience  = 30 * time.Second
	DefaultPods          = 1024
	DefaultPodTimeout    = 5 * time.Minute
)

// PingPath is the target of the requests that find out whether a pod is alive. Any answer counts.
const PingPath = "/peer/ping"

// Limits bound what a Relay does at a time, and for how long. The zero value of a field stands for its
// default.
type Limits struct {
	Requests int // in flight to one pod, streams among them
	Streams  int // requests in flight to one pod whose answer is a stream without an end
	Idle     int // connections without a request that one pod keeps

	IdleTimeout time.Duration // of a connection without a request
	// UnusedTimeout is that of a connection that never had one, because its client left before.
	UnusedTimeout time.Duration
	DialTimeout   time.Duration // for the connection and the TLS handshake together; long enough for one lost SYN
	PingInterval  time.Duration // between pings of a pod with requests in flight
	PingTimeout   time.Duration // for a pod to answer a ping, with the connection for it
	PingPatience  time.Duration // with a pod that answers no ping, but whose kernel acknowledges them

	Pods       int           // that the relay knows
	PodTimeout time.Duration // after which it forgets a pod without requests
}

// Options say how a Relay reaches pods.
type Options struct {
	// Handshake makes a connection one with the pod that has this UID, or closes it. The error is a
	// trust.ErrStranger if that pod is certainly not there.
	Handshake func(ctx context.Context, raw net.Conn, uid [16]byte) (*tls.Conn, error)
	// WriteTimeout is the time for a client to read one piece of an answer.
	WriteTimeout time.Duration
	// Dial connects to a pod; nil is TCP.
	Dial func(ctx context.Context, address netip.AddrPort) (net.Conn, error)
	Limits
}

// Relay carries requests to pods. It has no goroutine for a pod without requests in flight.
type Relay struct {
	options     Options
	counts      counts
	connections atomic.Int64

	over  context.Context // ends with Close
	close context.CancelFunc

	mu    sync.Mutex // guards everything below, and all pods
	pods  map[sessionid.Owner]*pod
	sweep *time.Timer // runs while there are pods
}

// New returns a Relay.
func New(options Options) *Relay {
	options.Limits = options.withDefaults()
	if options.Dial == nil {
		options.Dial = dialTCP
	}
	r := &Relay{options: options, pods: map[sessionid.Owner]*pod{}}
	r.over, r.close = context.WithCancel(context.Background())
	return r
}

func (l Limits) withDefaults() Limits {
	or := func(value *int, byDefault int) {
		if *value == 0 {
			*value = byDefault
		}
	}
	orTime := func(value *time.Duration, byDefault time.Duration) {
		if *value == 0 {
			*value = byDefault
		}
	}
	or(&l.Requests, DefaultRequests)
	or(&l.Streams, DefaultStreams)
	or(&l.Idle, DefaultIdle)
	or(&l.Pods, DefaultPods)
	orTime(&l.IdleTimeout, DefaultIdleTimeout)
	orTime(&l.UnusedTimeout, DefaultUnusedTimeout)
	orTime(&l.DialTimeout, DefaultDialTimeout)
	orTime(&l.PingInterval, DefaultPingInterval)
	orTime(&l.PingTimeout, DefaultPingTimeout)
	orTime(&l.PingPatience, DefaultPingPatience)
	orTime(&l.PodTimeout, DefaultPodTimeout)
	return l
}

// Forward sends a request to a pod and writes its answer to w. It returns nil when it has written the
// whole answer. Otherwise the error is one of these:
//
//   - *DialError: the pod got nothing, and w has nothing. The caller may call Forward again.
//   - ErrLost: the pod may have got the request, but did not answer. w has nothing.
//   - ErrBody: the rest of the body could not be read, for the reason that is wrapped. w has nothing.
//   - ErrMalformed: the request cannot be sent. w has nothing.
//   - ErrCut: the answer broke off after it had begun at w. The caller must abort the connection, so that
//     the client does not take a part for the whole.
//   - ErrClient: the context has ended, or the client does not read. w may have a part of the answer.
//     The caller must abort the connection, too.
func (r *Relay) Forward(ctx context.Context, w http.ResponseWriter, to sessionid.Owner, request *Request) error {
	err := r.forward(ctx, w, to, request)
	r.counts.forwards[outcomeOf(err)].Add(1)
	return err
}

func (r *Relay) forward(ctx context.Context, w http.ResponseWriter, to sessionid.Owner, request *Request) error {
	if !request.isWellFormed() {
		return ErrMalformed
	}
	stream := request.Stream || request.Method == http.MethodGet
	p, err := r.enter(ctx, to, request, stream)
	if err != nil {
		return err
	}
	defer r.leave(p, stream, request.Client)
	x := exchange{relay: r, ctx: ctx, w: w, request: request}
	err = x.try(p, false)
	if x.again && ctx.Err() == nil {
		err = x.try(p, true)
		if failed, ok := errors.AsType[*DialError](err); ok {
			return because(ErrLost, failed.Err) // the pod may have got the first one
		}
	}
	return err
}

// Close closes the connections without requests, and has later requests fail. Those in flight go on.
func (r *Relay) Close() {
	r.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sweep != nil {
		r.sweep.Stop()
	}
	for _, p := range r.pods {
		r.forgetIfUnusedLocked(p)
	}
}

var (
	errBusy   = errors.New("too many requests are in flight")
	errClosed = errors.New("the relay is closed")
)

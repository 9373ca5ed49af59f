// Package listener serves HTTP on ports that any client can reach. It bounds the open
// connections, keeps read deadlines and notices clients that go away at less cost than
// net/http does by itself, and has large bodies leave the processors to small calls.
package listener

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

const (
	// HeaderTimeout is for a client to send all headers of a request. Clients send them in
	// one packet or two, so this is long, and a client that sends them byte by byte holds a
	// connection no longer.
	HeaderTimeout = 10 * time.Second
	// idleTimeout is how long a connection without a request stays open. It is longer than
	// the pauses of a person who works with a tool, who then need not connect again.
	idleTimeout = 2 * time.Minute
	// unreadPatience is how long Shutdown waits until requests that have arrived are in flight.
	unreadPatience = 2 * time.Second
	// firstPatience is how long Shutdown gives a connection for the rest of its first headers, or of its
	// handshake. It is within unreadPatience: http.Server waits for such connections for 5 s.
	firstPatience = time.Second
	// headerBytes bounds the headers of one request. It leaves room for large tokens, and
	// bounds what the adapter holds for a client before it knows the client.
	headerBytes = 64 << 10
)

// Server is an http.Server with a limit on its connections. It has no time-out for whole
// requests or responses, because an event stream may last for hours.
type Server struct {
	http.Server
	conns *connections
}

// NewServer returns a Server that has at most limit connections open.
func NewServer(handler http.Handler, limit int, logger logr.Logger) *Server {
	return &Server{
		Server: http.Server{
			Handler:           handler,
			ReadHeaderTimeout: HeaderTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    headerBytes,
			ConnState:         recordState,
			ConnContext:       watchDisconnect,
			ErrorLog:          log.New(errorLog{logger}, "", 0),
		},
		conns: newConnections(limit),
	}
}

// Serve accepts connections until the server is closed. Run must run at the same time.
func (s *Server) Serve(l net.Listener) error {
	a := newAcceptor(l, s.conns)
	a.refuse = refuse
	go a.run()
	return s.Server.Serve(a)
}

// ServeWithin is Serve for HTTP within another protocol, such as TLS. within gets the listener whose
// connections count, and returns the one whose connections speak HTTP. These have the method NetConn of
// tls.Conn. So a connection counts before its handshake, and can be evicted during it.
func (s *Server) ServeWithin(l net.Listener, within func(net.Listener) net.Listener) error {
	a := newAcceptor(l, s.conns)
	go a.run()
	return s.Server.Serve(within(a))
}

// Shutdown is that of http.Server, but loses no request that has arrived: http.Server closes connections
// on which no goroutine has read the request yet.
//
// A request that arrives after its connection was retired is lost. Few clients have one to send: the
// edge closes connections from the beginning of a drain on, by the header Connection: close in every
// response that is not part of a session, and in the one that says that the session has ended.
func (s *Server) Shutdown(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, unreadPatience)
	defer cancel()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for s.conns.retireUnused(time.Now()) > 0 && patience.Err() == nil {
		select {
		case <-ticker.C:
		case <-patience.Done():
		}
	}
	return s.Server.Shutdown(ctx)
}

// Run enforces read deadlines until the context ends.
func (s *Server) Run(ctx context.Context) { s.conns.enforceDeadlines(ctx) }

// Connections is the number of open connections.
func (s *Server) Connections() int { return s.conns.count() }

// Limit is the number of connections that may be open.
func (s *Server) Limit() int { return s.conns.limit }

// Refused counts connections beyond the limit that the server refused.
func (s *Server) Refused() uint64 { return s.conns.refused.Load() }

// Evicted counts connections that the server closed in favor of new ones.
func (s *Server) Evicted() uint64 { return s.conns.evicted.Load() }

// errorLog logs what net/http logs, such as panics of handlers, in the format of the
// adapter's log.
type errorLog struct{ log logr.Logger }

func (l errorLog) Write(text []byte) (int, error) {
	l.log.Info("The HTTP server has a problem", "text", strings.TrimSpace(string(text)))
	return len(text), nil
}

// Listen opens a TCP port. The kernel closes connections to peers that vanish without a FIN
// or RST packet.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	return ListenWith(ctx, address, front.KeepAliveInterval, front.WriteTimeout)
}

// ListenWith is Listen with other times. The kernel probes a peer that was silent for the
// first one. It closes a connection whose peer does not acknowledge data within the second.
func ListenWith(ctx context.Context, address string, silence, unacknowledged time.Duration) (net.Listener, error) {
	config := net.ListenConfig{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence, Interval: silence / 3, Count: 3},
		Control: func(_, _ string, raw syscall.RawConn) error {
			const tcpUserTimeout = 18 // Connections inherit it from the listener.
			var setErr error
			err := raw.Control(func(fd uintptr) {
				setErr = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(unacknowledged.Milliseconds()))
			})
			return errors.Join(err, setErr)
		},
	}
	return config.Listen(ctx, "tcp", address) // the error names the address
}

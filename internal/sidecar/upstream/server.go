package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

const (
	dialTimeout         = 2 * time.Second
	responseHeaderBytes = 64 << 10
	idleConnections     = 256

	// Servers close connections that were silent for a while; the usual ones take
	// 5 seconds for that. A request that is just then on its way would be lost, so
	// connections are given up earlier. A new one costs next to nothing here.
	idleConnectionTimeout = 3 * time.Second
)

// server is the server in the pod: where it is and how it is reached.
type server struct {
	url       *url.URL
	dialer    net.Dialer
	transport *http.Transport
}

func newServer(at *url.URL) *server {
	s := &server{url: at, dialer: net.Dialer{Timeout: dialTimeout}}
	s.transport = &http.Transport{
		// No proxy: the server is here, whatever the environment says.
		DialContext:            s.dialer.DialContext,
		DisableCompression:     true,
		MaxResponseHeaderBytes: responseHeaderBytes,
		// There is no limit on connections in use: each stream has one, and the
		// number of streams is limited.
		MaxIdleConns:        idleConnections,
		MaxIdleConnsPerHost: idleConnections,
		IdleConnTimeout:     idleConnectionTimeout,
	}
	return s
}

// address is the host and port that are dialled, and the Host that the server is
// told: many accept no other than their own.
func (s *server) address() string {
	port := s.url.Port()
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(s.url.Hostname(), port)
}

// check says whether the server's port accepts connections.
func (s *server) check(ctx context.Context) error {
	connection, err := s.dialer.DialContext(ctx, "tcp", s.address())
	if err != nil {
		return fmt.Errorf("connect to the server: %w", err)
	}
	_ = connection.Close() // it was not used
	return nil
}

// send makes a request as it is: redirects are not followed, cookies not kept.
func (s *server) send(request *http.Request) (*http.Response, error) {
	response, err := s.transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", request.Method, request.URL.Path, err)
	}
	if response.StatusCode >= 200 && (response.StatusCode < 300 || response.StatusCode >= 400) {
		return response, nil
	}
	_ = response.Body.Close() // it is not read: there may never come anything
	if location := response.Header.Get("Location"); location != "" {
		return nil, fmt.Errorf("%w: it answers %s %s with a redirection to %q, which is not followed; is its path configured as it should be?",
			errUnusable, request.Method, request.URL.Path, rpc.Clip(location))
	}
	return nil, fmt.Errorf("%w: it answers with status %d, which has no meaning here", errUnusable, response.StatusCode)
}

// errUnusable says that the server answered, but with nothing to be passed on.
var errUnusable = errors.New("the server cannot be used as it is")

// discard closes an answer that nobody is interested in. A short one is read, so
// that the connection can be used again.
func discard(response *http.Response) {
	const short = 4 << 10
	_, _ = io.CopyN(io.Discard, response.Body, short)
	_ = response.Body.Close()
}

// isDown says whether an error means that there is no server at its port.
func isDown(err error) bool {
	operation, ok := errors.AsType[*net.OpError](err)
	return ok && operation.Op == "dial"
}

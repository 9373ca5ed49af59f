package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// EndTimeout is for the server to end a session.
const EndTimeout = 2 * time.Second

const (
	dialTimeout         = 2 * time.Second
	responseHeaderBytes = 64 << 10
	idleConnections     = 256

	// Servers close connections that were silent for a while; the usual ones take
	// 5 seconds for that. A request that is just then on its way would be lost, so
	// connections are given up earlier. A new one costs next to nothing here.
	idleConnectionTimeout = 3 * time.Second
)

// Endpoint is the server in the pod: where it is and how it is reached.
type Endpoint struct {
	url       *url.URL
	dialer    net.Dialer
	Transport *http.Transport // for tests to replace how it dials
}

func NewEndpoint(at *url.URL) *Endpoint {
	s := &Endpoint{url: at, dialer: net.Dialer{Timeout: dialTimeout}}
	s.Transport = &http.Transport{
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
func (s *Endpoint) address() string {
	port := s.url.Port()
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(s.url.Hostname(), port)
}

// Check says whether the server's port accepts connections.
func (s *Endpoint) Check(ctx context.Context) error {
	connection, err := s.dialer.DialContext(ctx, "tcp", s.address())
	if err != nil {
		return fmt.Errorf("connect to the server: %w", err)
	}
	_ = connection.Close() // it was not used
	return nil
}

// Send makes a request as it is: redirects are not followed, cookies not kept.
func (s *Endpoint) Send(request *http.Request) (*http.Response, error) {
	response, err := s.Transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", request.Method, request.URL.Path, err)
	}
	if response.StatusCode >= 200 && (response.StatusCode < 300 || response.StatusCode >= 400) {
		return response, nil
	}
	_ = response.Body.Close() // it is not read: there may never come anything
	if location := response.Header.Get("Location"); location != "" {
		return nil, fmt.Errorf("%w: it answers %s %s with a redirection to %q, which is not followed; is its path configured as it should be?",
			ErrUnusable, request.Method, request.URL.Path, rpc.Clip(location))
	}
	return nil, fmt.Errorf("%w: it answers with status %d, which has no meaning here", ErrUnusable, response.StatusCode)
}

// ErrUnusable says that the server answered, but with nothing to be passed on.
var ErrUnusable = errors.New("the server cannot be used as it is")

// Discard closes an answer that nobody is interested in. A short one is read, so
// that the connection can be used again.
func Discard(response *http.Response) {
	const short = 4 << 10
	_, _ = io.CopyN(io.Discard, response.Body, short)
	_ = response.Body.Close()
}

// IsDown says whether an error means that there is no server at its port.
func IsDown(err error) bool {
	operation, ok := errors.AsType[*net.OpError](err)
	return ok && operation.Op == "dial"
}

// IsEvents says whether an answer is an event stream.
func IsEvents(header http.Header) bool {
	mediaType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	return err == nil && mediaType == front.TypeEvents
}

// NewRequest is a request to the server, without headers yet.
func NewRequest(ctx context.Context, method string, to *url.URL, body []byte) *http.Request {
	request := (&http.Request{Method: method, URL: to, Host: to.Host, Header: http.Header{}}).WithContext(ctx)
	if body != nil {
		request.ContentLength = int64(len(body))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		request.Body, _ = request.GetBody() //nolint:forbidigo // It is a request of ours, and GetBody never fails.
	}
	return request
}

package remote

import (
	"bytes"
	"cmp"
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

const (
	// endTimeout is for the server to end a session.
	endTimeout = 2 * time.Second

	dialTimeout         = 2 * time.Second
	responseHeaderBytes = 64 << 10
	idleConnections     = 256

	// Servers close TCP connections that were silent for a while, usually after 5 seconds. A request
	// on its way would be lost then, so the adapter closes them earlier. A new one costs next to
	// nothing inside a pod.
	idleConnectionTimeout = 3 * time.Second
)

// Endpoint makes requests to a server in the pod.
type Endpoint struct {
	Transport *http.Transport

	address string // host and port
	dialer  net.Dialer
}

// NewEndpoint returns an Endpoint for the host and port of a URL. It connects to nothing.
func NewEndpoint(at *url.URL) *Endpoint {
	e := &Endpoint{address: net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "80")), dialer: net.Dialer{Timeout: dialTimeout}}
	e.Transport = &http.Transport{
		// No proxy: the server is in the pod, whatever the environment says.
		DialContext:            e.dialer.DialContext,
		DisableCompression:     true,
		MaxResponseHeaderBytes: responseHeaderBytes,
		// There is no limit on connections in use: each stream has one, and the adapter limits
		// streams.
		MaxIdleConns:        idleConnections,
		MaxIdleConnsPerHost: idleConnections,
		IdleConnTimeout:     idleConnectionTimeout,
	}
	return e
}

// Check says whether the server's port accepts connections.
func (e *Endpoint) Check(ctx context.Context) error {
	connection, err := e.dialer.DialContext(ctx, "tcp", e.address)
	if err != nil {
		return fmt.Errorf("connect to the server: %w", err)
	}
	_ = connection.Close() // it was not used
	return nil
}

// Send makes a request as it is. It follows no redirects and keeps no cookies.
func (e *Endpoint) Send(request *http.Request) (*http.Response, error) {
	response, err := e.Transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", request.Method, request.URL.Path, err)
	}
	if response.StatusCode >= 200 && (response.StatusCode < 300 || response.StatusCode >= 400) {
		return response, nil
	}
	_ = response.Body.Close() // not read, because it may never end
	if location := response.Header.Get("Location"); location != "" {
		return nil, fmt.Errorf("%w: it answers %s %s with a redirection to %q, which the adapter does not follow; check the configured path",
			ErrUnusable, request.Method, request.URL.Path, rpc.Clip(location))
	}
	return nil, fmt.Errorf("%w: it answers with status %d, which means nothing in MCP", ErrUnusable, response.StatusCode)
}

// ErrUnusable says that the server answered, but with nothing that the adapter can pass on.
var ErrUnusable = errors.New("the server cannot be used as it is")

// NewRequest is a request to the server. The Host is that of the URL: many servers accept only
// their own.
func NewRequest(ctx context.Context, method string, to *url.URL, header http.Header, body []byte) *http.Request {
	request := (&http.Request{Method: method, URL: to, Host: to.Host, Header: header}).WithContext(ctx)
	if body != nil {
		request.ContentLength = int64(len(body))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		request.Body, _ = request.GetBody() //nolint:forbidigo // It is a request of ours, and GetBody never fails.
	}
	return request
}

// endWait is how long a body may take to end whose rest is of no use. Most servers end it at once.
const endWait = 100 * time.Millisecond

// Discard closes a response whose rest is of no use. It reads the rest if that is short, so that the TCP
// connection can be used again.
func Discard(response *http.Response) {
	body := response.Body
	if body == http.NoBody { // as nearly all answers to notifications have
		return
	}
	const short = 4 << 10
	timer := time.AfterFunc(endWait, func() { _ = body.Close() })
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, body, short)
	_ = body.Close()
}

// Tell makes a request about a session whose answer is of no use. It does not wait for it for long.
func (e *Endpoint) Tell(ctx context.Context, method string, to *url.URL, header http.Header, body []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	response, err := e.Send(NewRequest(ctx, method, to, header, body))
	if err == nil {
		Discard(response)
	}
}

// IsDown says whether an error means that no server listens at the port.
func IsDown(err error) bool {
	operation, ok := errors.AsType[*net.OpError](err)
	return ok && operation.Op == "dial"
}

// IsEvents says whether a response is an event stream.
func IsEvents(header http.Header) bool {
	mediaType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	return err == nil && mediaType == front.TypeEvents
}

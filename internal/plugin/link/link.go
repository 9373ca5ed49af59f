// Package link connects to pods through the API server, with the caller's own rights: connections are
// streams of pods/portforward, so no port is open on the caller's machine.
package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// Pod is a connection to the API server that carries connections to one pod.
type Pod struct {
	name   types.NamespacedName
	tunnel httpstream.Connection

	mu   sync.Mutex
	next int // number of the next connection
}

// Open connects to a pod while ctx lasts. The library knows no contexts, so what it is late with is closed.
func Open(ctx context.Context, config *rest.Config, name types.NamespacedName) (*Pod, error) {
	type result struct {
		pod *Pod
		err error
	}
	done := make(chan result, 1)
	go func() {
		pod, err := connect(config, name)
		done <- result{pod, err}
	}()
	select {
	case opened := <-done:
		return opened.pod, opened.err
	case <-ctx.Done():
		go func() {
			if late := <-done; late.pod != nil {
				_ = late.pod.Close()
			}
		}()
		return nil, fmt.Errorf("connect to pod %s: %w", name, ctx.Err())
	}
}

func connect(config *rest.Config, name types.NamespacedName) (*Pod, error) {
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	dialer, err := dialerFor(config, api.CoreV1().RESTClient().Post().Resource("pods").Namespace(name.Namespace).Name(name.Name).SubResource("portforward").URL())
	if err != nil {
		return nil, fmt.Errorf("connect to pod %s: %w", name, err)
	}
	tunnel, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, fmt.Errorf("connect to pod %s: %w", name, err)
	}
	return &Pod{name: name, tunnel: tunnel}, nil
}

// dialerFor connects by WebSocket, and by SPDY where the way to the API server takes no WebSockets, as
// kubectl port-forward does.
func dialerFor(config *rest.Config, at *url.URL) (httpstream.Dialer, error) {
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(at, config)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	plain := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, at)
	return portforward.NewFallbackDialerForStreaming(overWebSocket, plain, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// Close ends all connections.
func (p *Pod) Close() error { return p.tunnel.Close() }

// Done is closed when the connection to the pod has ended.
func (p *Pod) Done() <-chan bool { return p.tunnel.CloseChan() }

// Dial connects to a port of the pod.
func (p *Pod) Dial(port int) (net.Conn, error) {
	p.mu.Lock()
	number := p.next
	p.next++
	p.mu.Unlock()
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(number))
	problems, err := p.tunnel.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("connect to port %d of pod %s: %w", port, p.name, err)
	}
	_ = problems.Close() // nothing is written to it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := p.tunnel.CreateStream(headers)
	if err != nil {
		p.tunnel.RemoveStreams(problems)
		return nil, fmt.Errorf("connect to port %d of pod %s: %w", port, p.name, err)
	}
	c := &conn{Stream: data, pod: p, port: port, problems: problems, ended: make(chan struct{})}
	go c.watch()
	return c, nil
}

// Client is an HTTP client whose every request goes to a port of the pod, whatever its URL says.
func (p *Pod) Client(port int) *http.Client {
	return &http.Client{Transport: plainly{&http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return p.Dial(port) },
	}}}
}

// plainly returns what the kubelet said without the words that http.Transport puts before it: these depend on how far
// the request got.
type plainly struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (p plainly) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := p.Transport.RoundTrip(request)
	if refused, ok := errors.AsType[*unreachable](err); ok {
		return nil, refused
	}
	return response, err
}

// unreachable is a port that the kubelet could not connect to.
type unreachable struct {
	pod  types.NamespacedName
	port int
	text string // the kubelet's
}

func (u *unreachable) Error() string {
	return fmt.Sprintf("connect to port %d of pod %s: %s", u.port, u.pod, u.text)
}

// conn is a connection to a port of a pod.
type conn struct {
	httpstream.Stream
	pod      *Pod
	port     int
	problems httpstream.Stream

	closing sync.Once
	ended   chan struct{} // closed when problem is known
	problem error
}

const (
	maxProblem      = 4 << 10 // bounds what is read of an error
	problemPatience = time.Second
)

// watch reads why the kubelet could not connect. The stream ends without a word if it could.
func (c *conn) watch() {
	message, err := io.ReadAll(io.LimitReader(c.problems, maxProblem))
	if text := strings.TrimSpace(string(message)); err == nil && text != "" {
		c.problem = &unreachable{c.pod.name, c.port, text}
	}
	close(c.ended)
	if c.problem != nil {
		// The pod may be gone while the tunnel stands. The next connection needs another one.
		_ = c.pod.Close()
	}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	return n, c.explain(err)
}

// Write implements net.Conn. The tunnel may end while the request is on its way.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Stream.Write(p)
	return n, c.explain(err)
}

// explain returns the words of the kubelet in place of an error, if it could not connect.
func (c *conn) explain(err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-c.ended:
		if c.problem != nil {
			return c.problem
		}
	case <-time.After(problemPatience): // why comes on another stream, and may come later
	}
	return err
}

// Close implements net.Conn.
func (c *conn) Close() (err error) {
	c.closing.Do(func() {
		err = errors.Join(c.Stream.Close(), c.Reset(), c.problems.Reset())
		c.pod.tunnel.RemoveStreams(c.Stream, c.problems)
	})
	return err
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: c.port} }

// SetDeadline implements net.Conn. Streams have no deadlines, so a caller that has waited too long closes the connection.
func (*conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (*conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (*conn) SetWriteDeadline(time.Time) error { return nil }

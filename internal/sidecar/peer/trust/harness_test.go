package trust

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/test/hang"
)

var (
	red  = [16]byte{0x11, 0x11, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55}
	blue = [16]byte{15: 1}
)

// ringOf is a ring that does not change.
func ringOf(current adapterapi.Key, accepted ...adapterapi.Key) func() adapterapi.Keyring {
	return func() adapterapi.Keyring { return adapterapi.Keyring{Current: current, Accepted: accepted} }
}

// leafOf is the certificate that a pod shows now.
func leafOf(t *testing.T, pod *Trust) *tls.Certificate {
	t.Helper()
	leaf, err := pod.leaf()
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// listen opens a port of this machine.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func dial(t *testing.T, to net.Listener) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// port is the peer port of a pod. It returns what a connection sends, and records each sender with
// its data.
type port struct {
	net.Listener
	got     chan greeting
	serving *sync.WaitGroup
}

type greeting struct {
	From [16]byte
	Text string
}

const hello = "hello"

func open(t *testing.T, pod *Trust) port {
	t.Helper()
	p := port{listenWithin(hang.Guard, listen(t), pod, logr.Discard()), make(chan greeting, 100), &sync.WaitGroup{}}
	p.serving.Go(func() {
		for {
			conn, err := p.Accept()
			if err != nil {
				return
			}
			p.serving.Go(func() { p.echo(conn) })
		}
	})
	t.Cleanup(p.close)
	return p
}

func (p port) close() {
	_ = p.Close()
	p.serving.Wait()
}

// closeEmpty closes the port, and says if a connection has come through before.
func (p port) closeEmpty(t *testing.T) {
	t.Helper()
	p.close()
	if len(p.got) > 0 {
		t.Errorf("the port has got %v", <-p.got)
	}
}

func (p port) echo(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	from, err := podIn(conn.(*tls.Conn).ConnectionState().PeerCertificates[0])
	if err != nil {
		panic(err)
	}
	text := make([]byte, len(hello))
	n, _ := io.ReadFull(conn, text)
	p.got <- greeting{from, string(text[:n])}
	_, _ = conn.Write(text[:n])
}

// greet connects to a port and waits until it has got the greeting back.
func greet(t *testing.T, from *Trust, to port, uid [16]byte) error {
	t.Helper()
	conn, err := from.Handshake(t.Context(), dial(t, to), uid)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if got, err := podIn(conn.ConnectionState().PeerCertificates[0]); err != nil || got != uid {
		t.Errorf("the dialer sees pod %x, %v", got, err)
	}
	return exchange(conn)
}

func exchange(conn net.Conn) error {
	if _, err := io.WriteString(conn, hello); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && string(answer) != hello {
		err = errors.New("the answer is " + string(answer))
	}
	return err
}

// pipes is a listener whose connections are in memory, for tests with a clock of their own.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

package mcpprobe

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// Target is the address of a server, and its transport.
type Target struct {
	kind   targetKind
	url    string
	header http.Header
	sign   func(http.Header) // adds headers to each request; may be nil
	reader io.Reader
	writer io.WriteCloser

	framing rpc.Framing
}

type targetKind uint8

const (
	streamableHTTP targetKind = iota + 1
	serverSentEvents
	pipes
)

// HTTP is a server that speaks Streamable HTTP. The probe sends the header with every
// request, and dials no other address than that of the URL.
func HTTP(url string, header http.Header) Target {
	return Target{kind: streamableHTTP, url: url, header: header}
}

// With returns a Target whose sign function adds headers to each request, such as a proof
// with a short life.
func (t Target) With(sign func(http.Header)) Target {
	t.sign = sign
	return t
}

// SSE is a server that speaks HTTP+SSE, the transport of 2024-11-05. The URL is that of
// its event stream. The rest is as with HTTP.
func SSE(url string, header http.Header) Target {
	return Target{kind: serverSentEvents, url: url, header: header}
}

// Pipes is a process: r is its standard output, w its standard input. The session owns w
// and closes it. It reads r until r ends, also after Close, so that the process never
// blocks on a write. The caller closes r.
func Pipes(r io.Reader, w io.WriteCloser) Target {
	return FramedPipes(r, w, rpc.Newline)
}

// FramedPipes is Pipes for a process that frames messages in another way.
func FramedPipes(r io.Reader, w io.WriteCloser, framing rpc.Framing) Target {
	return Target{kind: pipes, reader: r, writer: w, framing: framing}
}

// address checks the URL and returns it with the host and port to dial.
func (t Target) address() (*url.URL, string, error) {
	parsed, err := url.Parse(t.url)
	if err != nil {
		// The error of url.Parse repeats the URL, which may hold a secret.
		return nil, "", errors.New("the URL cannot be read")
	}
	port := parsed.Port()
	switch {
	case parsed.Hostname() == "" || parsed.User != nil:
		return nil, "", errors.New("the URL needs a host and must not hold a user")
	case parsed.Scheme == "http" && port == "":
		port = "80"
	case parsed.Scheme == "https" && port == "":
		port = "443"
	case parsed.Scheme != "http" && parsed.Scheme != "https":
		return nil, "", fmt.Errorf("the URL has the scheme %q, want http or https", clean(parsed.Scheme))
	}
	return parsed, net.JoinHostPort(parsed.Hostname(), port), nil
}

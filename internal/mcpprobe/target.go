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

// Target is where a server is and how it is spoken to.
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

// HTTP is a server that speaks Streamable HTTP. The header is sent with every
// request. Nothing but the address of this URL is ever dialled.
func HTTP(url string, header http.Header) Target {
	return Target{kind: streamableHTTP, url: url, header: header}
}

// With has a function add to the headers of each request, such as a proof that is good
// for a short time only.
func (t Target) With(sign func(http.Header)) Target {
	t.sign = sign
	return t
}

// SSE is a server that speaks the two-endpoint transport of 2024-11-05; the URL is
// that of its event stream. The rest is as with HTTP.
func SSE(url string, header http.Header) Target {
	return Target{kind: serverSentEvents, url: url, header: header}
}

// Pipes is a process: r is its standard output, w its standard input. The session
// owns w and closes it. It reads r until r ends, even after it was closed itself, so
// that a process that still writes is not held up; closing r is up to the caller.
func Pipes(r io.Reader, w io.WriteCloser) Target {
	return FramedPipes(r, w, rpc.Newline)
}

// FramedPipes is Pipes for a process that tells messages apart in a way of its own.
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

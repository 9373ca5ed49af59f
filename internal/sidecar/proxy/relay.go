package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote"
)

// relaySize is how much of an answer the proxy holds at a time.
const relaySize = 32 << 10

var buffers = sync.Pool{New: func() any { return new([relaySize]byte) }}

// commitAfter is how long the headers of a call's stream wait for its first event, so that the proxy
// can send both in one write.
const commitAfter = 100 * time.Millisecond

var errClientSlow = errors.New("the client does not read")

// relay sends the server's answer to the client, as it comes. If it breaks off in the middle, the
// client sees that.
func (x *exchange) relay(ctx context.Context, cancel context.CancelCauseFunc, response *http.Response) {
	write, end := x.begin(response, func() { cancel(errClientSlow) })
	err := copyBody(write, response.Body)
	whole := end()
	switch cause := context.Cause(ctx); {
	case err == nil || errors.Is(err, errClientSlow) || errors.Is(cause, errClientSlow) || errors.Is(cause, errClientGone):
		return
	case errors.Is(cause, errTimeout):
		x.timedOut(ctx)
	case cause == nil:
		x.proxy.noteOutage()
		x.proxy.Metrics.Broken.Inc()
	}
	x.r.Record.Answered(edge.Broken)
	if !whole {
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
}

// begin sends the head of the answer, or prepares it to be sent. It returns a function that writes
// the body. It also returns one that ends the writing, and says whether the client may take the part
// that was written for the whole. slow is called when the client does not read while the server is
// silent.
func (x *exchange) begin(response *http.Response, slow func()) (write func([]byte) error, end func() (whole bool)) {
	passHeaders(x.w.Header(), response.Header)
	if remote.IsEvents(response.Header) {
		events := front.StartEvents(x.w, response.StatusCode, x.proxy.WriteTimeout, nil)
		if response.Header.Get("Content-Encoding") == "" {
			first := commitAfter
			if x.stream {
				first = 0 // proxies hold headers back until a byte follows them (T-13)
			}
			events.KeepAlive(first, x.proxy.KeepAlive, slow)
		}
		return events.Relay, events.Close
	}
	x.w.WriteHeader(response.StatusCode)
	out := front.NewWriter(x.w, x.proxy.WriteTimeout, nil)
	write = out.Write
	if response.ContentLength < 0 {
		write = out.WriteNow
	}
	return write, func() bool { out.Close(); return false }
}

// copyBody writes everything that it can read.
func copyBody(write func([]byte) error, from io.Reader) error {
	buffer := buffers.Get().(*[relaySize]byte) //nolint:forcetypeassert // the pool has nothing else
	defer buffers.Put(buffer)
	for {
		n, err := from.Read(buffer[:])
		if n > 0 {
			if err := write(buffer[:n]); err != nil {
				return errors.Join(errClientSlow, err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

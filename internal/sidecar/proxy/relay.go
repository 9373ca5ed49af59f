package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
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
	buffer := buffers.Get().(*[relaySize]byte) //nolint:forcetypeassert // the pool has nothing else
	_, err := io.CopyBuffer(toClient(write), response.Body, buffer[:])
	buffers.Put(buffer)
	x.relayed(ctx, err, end())
}

// relayed records how a relay ended. If the answer broke off, the client must see that.
func (x *exchange) relayed(ctx context.Context, err error, whole bool) {
	switch cause := context.Cause(ctx); {
	case err == nil || errors.Is(err, errClientSlow) || errors.Is(cause, errClientSlow) || errors.Is(cause, errClientGone):
		return
	case errors.Is(cause, errTimeout):
		x.timedOut(ctx)
	case cause == nil && errors.Is(err, budget.ErrNoRoom):
		x.proxy.Metrics.Refused.Inc()
	case cause == nil:
		if !errors.Is(err, errUnfiltered) && !errors.Is(err, rpc.ErrEventTooLarge) { // the server is there
			x.proxy.noteOutage()
		}
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

// toClient is an io.Writer whose errors wrap errClientSlow.
type toClient func([]byte) error

func (write toClient) Write(data []byte) (int, error) {
	if err := write.send(data); err != nil {
		return 0, err
	}
	return len(data), nil
}

func (write toClient) send(data []byte) error {
	if err := write(data); err != nil {
		return errors.Join(errClientSlow, err)
	}
	return nil
}

package remote

import (
	"context"
	"net/http/httptrace"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// ackWait is how long a message waits for the server to accept it. Most servers accept at once, and
// so messages arrive in order. Some accept a call only with its answer, which may depend on the
// client. A message does not wait for that.
const ackWait = 250 * time.Millisecond

// startPost has do make a request, with a context that lasts no longer than live does. It waits for the
// server to read the request, and then for do as long as wait says. It returns the error of do, or
// the channel that this comes on if startPost waits no longer. The context bounds how long the server may
// take to read.
func (l *link) startPost(ctx, live context.Context, wait time.Duration, do func(context.Context) error) (late <-chan error, err error) {
	select {
	case l.slots <- struct{}{}:
	default:
		return nil, session.ErrTooManyCalls
	}
	ctx, done := context.WithTimeout(ctx, l.server.SendTimeout)
	defer done()
	doing, cancel := context.WithCancel(live)
	written := make(chan struct{}, 1)
	doing = httptrace.WithClientTrace(doing, &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				select {
				case written <- struct{}{}:
				default: // it was written once more
				}
			}
		},
	})
	over := make(chan error, 1)
	go func() {
		defer cancel()
		err := do(doing)
		<-l.slots
		over <- err
	}()
	select {
	case err := <-over:
		return nil, err
	case <-ctx.Done():
		cancel()
		return nil, ctx.Err()
	case <-written:
	}
	if wait > 0 {
		patience := time.NewTimer(wait)
		defer patience.Stop()
		select {
		case err := <-over:
			return nil, err
		case <-ctx.Done(): // the client is gone, which cancels nothing
		case <-patience.C:
		}
	}
	return over, nil
}

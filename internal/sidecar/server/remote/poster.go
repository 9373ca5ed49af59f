package remote

import (
	"context"
	"net/http/httptrace"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// ackWait is how long a message waits for the server to say that it has it. Most
// say so at once, and in that order messages arrive. Some say so only when they
// have answered the call, which may need the client's help: that is not awaited.
const ackWait = 250 * time.Millisecond

// poster posts messages, so many at a time.
type poster struct {
	slots   chan struct{}
	timeout time.Duration // for the server to take a message
}

func newPoster(most int, timeout time.Duration) poster {
	return poster{slots: make(chan struct{}, most), timeout: timeout}
}

// posting is how one message is posted.
type posting struct {
	// do makes the request with the context that it is given.
	do func(ctx context.Context) error
	// ackWait is how long its end is awaited once the request has been written.
	ackWait time.Duration
	// late is told where what do returns will be, if that was not awaited. It must not wait.
	late func(over <-chan error, cancel context.CancelFunc)
}

// post does a posting, which lasts no longer than live does. It returns what do returns,
// or nil when the request has been written and nobody waits any longer. The context
// bounds how long the server may take to read.
func (p poster) post(ctx, live context.Context, what posting) error {
	select {
	case p.slots <- struct{}{}:
	default:
		return session.ErrTooManyCalls
	}
	ctx, done := context.WithTimeout(ctx, p.timeout)
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
		err := what.do(doing)
		<-p.slots
		over <- err
	}()
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
		cancel()
		return ctx.Err()
	case <-written:
	}
	if what.ackWait > 0 {
		patience := time.NewTimer(what.ackWait)
		defer patience.Stop()
		select {
		case err := <-over:
			return err
		case <-ctx.Done(): // the client is gone, which cancels nothing
		case <-patience.C:
		}
	}
	what.late(over, cancel)
	return nil
}

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

// poster posts messages, so many at a time.
type poster struct {
	slots   chan struct{}
	timeout time.Duration // for the server to read a message
}

// posting is how one message is posted.
type posting struct {
	// do makes the request with the context that it is given.
	do func(ctx context.Context) error
	// ackWait is how long post waits for do after the server has read the request.
	ackWait time.Duration
	// late is called with the channel that the error of do comes on, if post did not wait for it.
	// It must not block; may be nil.
	late func(over <-chan error)
}

// post does a posting, which lasts no longer than live does. It returns the error of do, or nil when
// the server has read the request and post waits no longer. The context bounds how long the server
// may take to read.
func (p poster) post(ctx, live context.Context, message posting) error {
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
		err := message.do(doing)
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
	if message.ackWait > 0 {
		patience := time.NewTimer(message.ackWait)
		defer patience.Stop()
		select {
		case err := <-over:
			return err
		case <-ctx.Done(): // the client is gone, which cancels nothing
		case <-patience.C:
		}
	}
	if message.late != nil {
		message.late(over)
	}
	return nil
}

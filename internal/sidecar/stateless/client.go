package stateless

import (
	"context"
	"errors"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Call is a request that the adapter itself makes of the server.
type Call call

// Call makes a request that no client sent as it stands, on behalf of request.From. It
// must be an envelope of revision 2026-07-28; its id and progress token may be any. The
// caller of this method must release the Call.
func (e *Endpoint) Call(ctx context.Context, request session.Message) (*Call, error) {
	for try := 1; ; try++ {
		running, err := e.running(ctx, request)
		if err != nil {
			return nil, err
		}
		c, err := e.call(ctx, running, request, inside)
		if errors.Is(err, errGone) && try < tries {
			continue
		}
		if err != nil {
			return nil, err
		}
		return (*Call)(c), nil
	}
}

// Take returns the next message, if there is one: notifications that belong to the
// request, and then its answer, which is the last.
func (c *Call) Take() (message []byte, last, ok bool) {
	next, ok := (*call)(c).take()
	return next.message, next.last, ok
}

// Ready has a value when there may be something to take.
func (c *Call) Ready() <-chan struct{} { return c.wake }

// Release says that nobody waits for the answer any more. If there is none yet, the
// server is told.
func (c *Call) Release() { (*call)(c).release() }

package stateless

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Caller is on whose behalf a request is made. A process cannot be told, but what stands
// in for processes keeps those of different callers apart.
type Caller struct {
	// Principal tells callers apart. It is no secret, and empty for this program itself.
	Principal string
	// Authorization is what the caller showed to be let in, if anything.
	Authorization []string
}

type callerKey struct{}

// WithCaller says on whose behalf requests are made.
func WithCaller(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// CallerOf is on whose behalf a request is made.
func CallerOf(ctx context.Context) Caller {
	caller, _ := ctx.Value(callerKey{}).(Caller)
	return caller
}

// CallerIn tells clients apart by what they show to be let in. Nobody checks it here: it
// is enough that one cannot show what another has. Those who show nothing are told apart
// by where they come from, as far as that can be seen.
func CallerIn(r *http.Request) Caller {
	shown := r.Header.Values("Authorization")
	if len(shown) == 0 {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			host = r.RemoteAddr
		}
		return Caller{Principal: "address " + host}
	}
	hash := sha256.New()
	for _, value := range shown {
		_, _ = hash.Write(append([]byte(value), 0)) // which never fails
	}
	return Caller{Principal: "authorization " + hex.EncodeToString(hash.Sum(nil)), Authorization: shown}
}

// Call is a request that is made of the server by this program.
type Call struct{ call *call }

// Call makes a request that no client sent as it stands. It must be an envelope of
// revision 2026-07-28; its id and progress token may be any. Whoever calls it must
// release the Call.
func (e *Endpoint) Call(ctx context.Context, request session.Message) (*Call, error) {
	for try := 1; ; try++ {
		running, err := e.running(ctx, request)
		if err != nil {
			return nil, err
		}
		c, err := e.call(ctx, running, request, true)
		if errors.Is(err, errGone) && try < tries {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &Call{c}, nil
	}
}

// Take returns the next message, if there is one: notifications that belong to the
// request, and then its answer, which is the last.
func (c *Call) Take() (message []byte, last, ok bool) {
	next, ok := c.call.take()
	return next.message, next.last, ok
}

// Ready has a value when there may be something to take.
func (c *Call) Ready() <-chan struct{} { return c.call.wake }

// Release says that nobody waits for the answer any more. If there is none yet, the
// server is told.
func (c *Call) Release() { c.call.release() }

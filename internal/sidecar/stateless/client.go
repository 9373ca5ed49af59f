package stateless

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

type principalKey struct{}

// WithPrincipal says on whose behalf requests are made.
func WithPrincipal(ctx context.Context, principal string) context.Context {
	return context.WithValue(ctx, principalKey{}, principal)
}

// Principal is on whose behalf a request is made; empty for everybody who does not say.
// A process cannot be told, but what stands in for processes keeps those of different
// principals apart.
func Principal(ctx context.Context) string {
	principal, _ := ctx.Value(principalKey{}).(string)
	return principal
}

// principalOf tells clients apart by what they show to be let in. Nobody checks it here:
// it is enough that one cannot show what another has. Its digest is not a secret.
func principalOf(r *http.Request) string {
	shown := r.Header.Values("Authorization")
	if len(shown) == 0 {
		return ""
	}
	hash := sha256.New()
	for _, value := range shown {
		_, _ = hash.Write(append([]byte(value), 0)) // which never fails
	}
	return hex.EncodeToString(hash.Sum(nil))
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

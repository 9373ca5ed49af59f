package tolegacy

import (
	"context"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Modern is the server of revision 2026-07-28.
type Modern interface {
	// Call makes one request, which names its revision and its client, on behalf of
	// request.From. Any id and any progress token will do: the server sees others, and the
	// messages that come back have these again. The context is for making the request, and not
	// for waiting for the answer.
	Call(ctx context.Context, request session.Message) (Exchange, error)
}

// Exchange is a request that was made.
type Exchange interface {
	// Take returns the next message for the request, if there is one: notifications, and then
	// the answer, which is the last. The message belongs to the code that took it.
	Take() (message []byte, last bool, ok bool)
	// Ready has a value when there may be something to take.
	Ready() <-chan struct{}
	// Release says that the client does not wait any more. The server is told, unless it has
	// answered.
	Release()
}

// follow waits for the answer to a request, and passes on the notifications that come before it.
// It returns nil if the context ends.
func follow(ctx context.Context, exchange Exchange, passOn func(notification []byte)) (answer []byte) {
	defer exchange.Release()
	for {
		message, last, err := await(ctx, exchange)
		switch {
		case err != nil:
			return nil
		case last:
			return message
		}
		passOn(message)
	}
}

// await takes the next message of an exchange.
func await(ctx context.Context, exchange Exchange) (message []byte, last bool, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		if message, last, ok := exchange.Take(); ok {
			return message, last, nil
		}
		select {
		case <-exchange.Ready():
		case <-ctx.Done():
		}
	}
}

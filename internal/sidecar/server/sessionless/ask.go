package sessionless

import (
	"context"
	"fmt"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/version"
)

// ask makes a request of the adapter's own, on behalf of a client if from is not nil. The
// caller must release the Call.
func (p *process) ask(ctx context.Context, from *caller.Caller, method, params string) (*Call, error) {
	text := rpc.AppendRequest(nil, []byte("0"), method, params) // send replaces the id
	envelope, err := rpc.Scan(text)
	if err != nil {
		panic(err) // the adapter makes only valid ones
	}
	request := session.Message{Bytes: text, Envelope: envelope, From: from}
	c := newCall(p, request)
	c.own = true
	return p.send(ctx, c, request)
}

// awaitNext waits for the next message.
func (c *Call) awaitNext(ctx context.Context) (Event, error) {
	for {
		if next, ok := c.Next(); ok {
			return next, nil
		}
		select {
		case <-c.ready:
		case <-ctx.Done():
			return Event{}, fmt.Errorf("wait for the server to answer: %w", ctx.Err())
		}
	}
}

// await waits for the answer.
func (c *Call) await(ctx context.Context) ([]byte, error) {
	for {
		switch next, err := c.awaitNext(ctx); {
		case err != nil:
			return nil, err
		case next.Last:
			return next.Message, c.process.Dead()
		}
	}
}

// forget is Release for a request that the adapter need not cancel.
func (c *Call) forget() {
	c.process.mu.Lock()
	c.answered = true
	c.process.mu.Unlock()
	c.Release()
}

// allCapabilities are those of a client that can do everything. Some servers list more
// tools to clients that can do more, and the adapter has to know all.
const allCapabilities = `{"elicitation":{"form":{},"url":{}},"roots":{},"sampling":{"tools":{},"context":{}}}`

// metaWith is the envelope of a request of a client with these capabilities.
func metaWith(capabilities string) string {
	return `"_meta":{"` + rpc.MetaProtocolVersion + `":"` + front.Revision20260728 + `",` +
		`"` + rpc.MetaClientInfo + `":` + rpc.ClientInfo(version.Get().Version) + `,` +
		`"` + rpc.MetaClientCapabilities + `":` + capabilities + `}`
}

func (p *process) askInitialize(ctx context.Context) (*Call, error) {
	return p.ask(ctx, nil, rpc.MethodInitialize, rpc.InitializeParams(front.Revision20251125, "{}", version.Get().Version))
}

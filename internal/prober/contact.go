package prober

import (
	"context"
	"net/http/httptrace"
	"sync"
)

// how is how far a request came.
type how struct {
	reached bool // a connection was there
	fresh   bool // and no earlier request had used it
	heard   bool // a byte of the answer came
}

// contact watches how far a request comes. The transport may call it after the request is over.
type contact struct {
	mu sync.Mutex
	how
}

// trace returns a context for the request.
func (c *contact) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			c.note(func(h *how) { *h = how{reached: true, fresh: !info.Reused} }) // also when the transport tries again
		},
		GotFirstResponseByte: func() { c.note(func(h *how) { h.heard = true }) },
	})
}

func (c *contact) note(change func(*how)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.how)
}

func (c *contact) get() how {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.how
}

package relay

import (
	"context"
	"errors"
	"time"
)

// ping finds out whether a pod with requests in flight is alive. The kernel tells only when it has lost
// a connection, and a pod whose node is gone loses none. The mutex of the Relay guards the fields.
type ping struct {
	timer *time.Timer
	armed bool               // the timer runs, or its function does
	stop  context.CancelFunc // ends the ping that is under way; nil if none is
	conn  *conn              // for pings only; nil if there is none
}

// armPingLocked has the pod pinged while requests are in flight. Most are answered before the first ping,
// so a timer that runs serves those that follow, too.
func (r *Relay) armPingLocked(p *pod) {
	switch {
	case p.ping.armed:
	case p.ping.timer == nil:
		p.ping.timer = time.AfterFunc(r.options.PingInterval, func() { r.pingPod(p) })
	default:
		p.ping.timer.Reset(r.options.PingInterval)
	}
	p.ping.armed = true
}

// end lets go of the timer and the connection.
func (g *ping) end() {
	if g.timer != nil {
		g.timer.Stop()
	}
	if g.conn != nil {
		g.conn.close()
	}
	g.conn, g.armed = nil, false
}

// pingPod pings a pod if requests are in flight, and fails them if the pod does not answer.
func (r *Relay) pingPod(p *pod) {
	r.mu.Lock()
	if p.inFlight == 0 {
		p.ping.end()
		r.mu.Unlock()
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), r.options.PingTimeout)
	defer stop()
	p.ping.stop = stop
	c := p.ping.conn
	r.mu.Unlock()

	begin := time.Now()
	c, err := r.pingOn(ctx, p, c)
	alive := err == nil || isRefused(err) || errors.Is(ctx.Err(), context.Canceled) || r.over.Err() != nil
	if !alive {
		r.dropAll(p)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	p.ping.stop, p.ping.conn = nil, c
	if r.forgetIfOverLocked(p) {
		return
	}
	// An answer may be about the beginning of the ping, so the next one does not wait for longer.
	p.ping.timer.Reset(max(0, r.options.PingInterval-time.Since(begin)))
}

// isRefused reports whether the pod's kernel refused the connection for a ping. The kernel is alive
// then, and ends the connections of programs that are not. An owner that shuts down refuses connections,
// too, while it answers its last requests.
func isRefused(err error) bool {
	var dial *DialError
	return errors.As(err, &dial) && dial.Outcome == Refused
}

// pingOn pings a pod on a connection, or on a new one if the pod has closed it. It returns the
// connection for the next ping, or nil.
func (r *Relay) pingOn(ctx context.Context, p *pod, c *conn) (*conn, error) {
	if c != nil && !c.isStale() && c.ping(ctx, p) == nil {
		return c, nil
	}
	if c != nil {
		c.close()
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c, err := r.dial(ctx, p.owner)
	if err != nil {
		return nil, err
	}
	if err := c.ping(ctx, p); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// maxPingAnswer bounds the body of an answer to a ping.
const maxPingAnswer = 4 << 10

// ping sends a ping and reads the answer.
func (c *conn) ping(ctx context.Context, p *pod) error {
	defer context.AfterFunc(ctx, c.close)()
	if _, err := c.tls.Write([]byte("GET " + PingPath + " HTTP/1.1\r\nHost: " + p.owner.Address.String() + "\r\n\r\n")); err != nil {
		return err
	}
	response, err := c.readHead()
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if !c.drain(response, maxPingAnswer) {
		c.close() // an answer it is
	}
	return nil
}

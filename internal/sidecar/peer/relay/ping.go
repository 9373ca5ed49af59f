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
	since time.Time          // when the first ping was sent that had no answer; zero if the last one had one
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
	g.conn, g.armed, g.since = nil, false, time.Time{}
}

// pingPod pings a pod if requests are in flight, and fails them if the pod does not answer.
func (r *Relay) pingPod(p *pod) {
	r.mu.Lock()
	if p.inFlight == 0 {
		p.ping.end()
		r.mu.Unlock()
		return
	}
	ctx, stop := within(context.Background(), r.options.PingTimeout)
	defer stop()
	p.ping.stop = stop
	c := p.ping.conn
	r.mu.Unlock()

	begin := time.Now()
	c, err := r.pingOn(ctx, p, c)
	stopped := errors.Is(context.Cause(ctx), context.Canceled) || r.over.Err() != nil

	r.mu.Lock()
	defer r.mu.Unlock()
	p.ping.stop, p.ping.conn = nil, c
	if !stopped && r.isDeadLocked(p, err, begin) {
		r.dropAllLocked(p)
	}
	if r.forgetIfOverLocked(p) {
		return
	}
	// An answer may be about the beginning of the ping, so the next one does not wait for longer.
	p.ping.timer.Reset(max(0, r.options.PingInterval-time.Since(begin)))
}

// isDeadLocked reports whether a pod counts as dead after a ping that began then. A pod of which nothing was heard, not
// even of its kernel, does so at once: its node is lost, or the way there. So does one whose address something else
// has. If the kernel answers, the
// program is there, but its machine may be too busy for it. The kernel would end the connections of a program
// that is not there. So such a pod has more time.
func (r *Relay) isDeadLocked(p *pod, err error, began time.Time) bool {
	switch {
	case err == nil || isDial(err, Refused) || isDial(err, Busy) || p.heard.After(began):
		// An owner that shuts down refuses connections while it answers its last requests.
		p.ping.since = time.Time{}
		return false
	case p.ping.since.IsZero():
		p.ping.since = began
	}
	if isDial(err, Stranger) || isDial(err, Unreachable) || errors.Is(err, errSilent) || time.Since(p.ping.since) >= r.options.PingPatience {
		p.ping.since = time.Time{}
		return true
	}
	return false
}

func isDial(err error, outcome Outcome) bool {
	dial, ok := errors.AsType[*DialError](err)
	return ok && dial.Outcome == outcome
}

// pingOn pings a pod on a connection, or on a new one if the pod has closed it. It returns the
// connection for the next ping, or nil.
func (r *Relay) pingOn(ctx context.Context, p *pod, c *conn) (*conn, error) {
	if c != nil && !c.isStale() {
		if err := c.ping(ctx, p); err == nil || ctx.Err() != nil {
			return c.unlessClosed(), err
		}
	}
	if c != nil {
		c.close()
	}
	c, err := r.dial(ctx, p.owner)
	if err != nil {
		return nil, err
	}
	if err := c.ping(ctx, p); err != nil {
		c.close()
		return nil, err
	}
	return c.unlessClosed(), nil
}

func (c *conn) unlessClosed() *conn {
	if c.isClosed() {
		return nil
	}
	return c
}

// maxPingAnswer bounds the body of an answer to a ping.
const maxPingAnswer = 4 << 10

// errSilent says that the kernel of a pod has not acknowledged a ping in time.
var errSilent = errors.New("the pod does not even acknowledge a ping")

// ping sends a ping and reads the answer. If the context ends before, it closes the connection.
func (c *conn) ping(ctx context.Context, p *pod) error {
	acknowledged := make(chan bool, 1)
	release := context.AfterFunc(ctx, func() {
		acknowledged <- c.isAcknowledged()
		c.close()
	})
	err := c.sendPing(p)
	if err != nil && !release() && !<-acknowledged {
		return because(errSilent, err)
	}
	release()
	return err
}

func (c *conn) sendPing(p *pod) error {
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

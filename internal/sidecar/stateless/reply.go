package stateless

import (
	"context"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// reply writes what arrives for a call to its client. It commits itself late: an answer
// that comes first becomes one JSON body with a status of its own, anything else an
// event stream (M-20).
type reply struct {
	endpoint *Endpoint
	limits   *Limits
	w        http.ResponseWriter
	r        *edge.Request
	call     *call
	timeout  <-chan time.Time // of the call; a subscription has none
	last     bool             // nothing follows what was gathered
	failed   string           // how the call failed, if it is over
}

func (e *Endpoint) reply(w http.ResponseWriter, r *edge.Request, c *call) {
	defer c.release()
	p := reply{endpoint: e, limits: &e.options.Limits, w: w, r: r, call: c}
	if !c.listen {
		timer := time.NewTimer(p.limits.CallTimeout)
		defer timer.Stop()
		p.timeout = timer.C
	}
	p.run()
}

func (p *reply) run() {
	commit := time.NewTimer(p.limits.CommitAfter)
	defer commit.Stop()
	for {
		next, ok := p.call.take()
		switch {
		case ok && next.last:
			p.writeJSON(next)
			return
		case ok:
			p.stream(&next)
			return
		}
		select {
		case <-p.call.wake:
		case <-commit.C:
			p.stream(nil)
			return
		case <-p.timeout:
			p.writeJSON(p.timedOut())
			return
		case <-p.r.Context().Done():
			return
		}
	}
}

func (p *reply) timedOut() event {
	p.endpoint.metrics.CallTimeouts.Inc()
	text := "the call took longer than " + p.limits.CallTimeout.String()
	return event{message: rpc.AppendError(nil, p.call.id, rpc.CodeInternal, text, nil), last: true, status: http.StatusOK, failed: string(edge.Timeout)}
}

func (p *reply) writeJSON(answer event) {
	front.WriteJSON(p.w, answer.status, answer.message, p.limits.WriteTimeout, p.call)
	p.r.Record.Answered(edge.ErrorType(answer.failed))
}

// stream answers by an event stream, until it ends or the client goes. The first event may
// be nil. Events have no ids: nothing can be resumed in this revision (M-08).
func (p *reply) stream(first *event) {
	events := front.StartEvents(p.w, http.StatusOK, p.limits.WriteTimeout, p.call)
	source := *p // most calls have one body for an answer, and need nothing of this on the heap
	if first != nil {
		source.append(events, *first)
	} else {
		events.Comment()
	}
	if events.Run(p.r.Context(), p.limits.KeepAlive, &source) {
		p.r.Record.Answered(edge.ErrorType(source.failed))
	}
}

func (p *reply) append(to *front.Events, e event) {
	to.Append(rpc.Event{Data: e.message})
	p.last, p.failed = e.last, e.failed
}

// Gather is that of front.Source.
func (p *reply) Gather(to *front.Events) (more bool) {
	for !p.last && !to.Full() {
		next, ok := p.call.take()
		if !ok {
			break
		}
		p.append(to, next)
	}
	return !p.last
}

// Wait is that of front.Source.
func (p *reply) Wait(ctx context.Context, to *front.Events) {
	select {
	case <-p.call.wake:
	case <-p.timeout:
		p.append(to, p.timedOut())
	case <-ctx.Done():
	}
}

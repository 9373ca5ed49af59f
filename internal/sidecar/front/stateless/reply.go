package stateless

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/handle"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
)

// reply writes the messages of a call to its client. It commits itself late: an answer
// that comes first becomes one JSON body with a status of its own, anything else an
// event stream (M-20).
type reply struct {
	endpoint *Endpoint
	w        http.ResponseWriter
	r        *edge.Request
	call     *sessionless.Call
	filter   *rules.ListFilter // of the answer; nil if the client may see all of it
	timer    *time.Timer       // until the next deadline
	rest     time.Duration     // until the call times out, after that; negative for a subscription, which does not
	last     bool              // nothing follows what was gathered
	failed   string            // how the call failed, if it has ended
	listens  *listening        // nil unless the call is a subscription
}

func (e *Endpoint) reply(w http.ResponseWriter, r *edge.Request, c *sessionless.Call, filter *rules.ListFilter) {
	defer c.Release()
	commit, rest := e.options.CommitAfter, time.Duration(-1)
	if !c.IsSubscription() {
		commit = min(commit, e.options.CallTimeout)
		rest = e.options.CallTimeout - commit
	}
	timer := e.startTimer(commit)
	defer e.stopTimer(timer)
	p := reply{endpoint: e, w: w, r: r, call: c, filter: filter, timer: timer, rest: rest}
	if c.IsSubscription() && r.Caller.Grant != nil {
		p.listens = &listening{grant: r.Caller.Grant}
	}
	p.run()
}

// startTimer returns a timer that no other reply uses. Most replies need none in the end, so
// they share a few.
func (e *Endpoint) startTimer(after time.Duration) *time.Timer {
	if timer, ok := e.timers.Get().(*time.Timer); ok {
		timer.Reset(after)
		return timer
	}
	return time.NewTimer(after)
}

func (e *Endpoint) stopTimer(timer *time.Timer) {
	timer.Stop() // and its channel has no value after that
	e.timers.Put(timer)
}

func (p *reply) run() {
	for {
		next, ok := p.next()
		switch {
		case ok && next.Last:
			p.writeJSON(next)
			return
		case ok:
			p.stream(&next)
			return
		}
		select {
		case <-p.call.Ready():
		case <-p.timer.C:
			if p.isLate() {
				p.writeJSON(p.timedOut())
			} else {
				p.stream(nil)
			}
			return
		case <-p.r.Context().Done():
			refuseEnded(p.w, p.r, p.call.ID())
			return
		}
	}
}

// next returns the next message of the call, as the client may see it.
func (p *reply) next() (sessionless.Event, bool) {
	next, ok := p.call.Next()
	for ok && p.listens != nil && !p.listens.passes(next.Message) {
		next, ok = p.call.Next()
	}
	if !ok || !next.Last || next.Code != 0 {
		return next, ok
	}
	if p.filter != nil {
		now := p.r.Caller.Grant.Now() // the rules may have changed since the client asked
		shown, envelope := p.filter.For(now.Rights).Apply(next.Message, p.call.ID())
		next.Message = shown
		noteError(&next, &envelope)
	}
	p.bind(&next)
	return next, true
}

// bind binds the handles in an answer to the caller.
func (p *reply) bind(answer *sessionless.Event) {
	handles := p.endpoint.options.Handles
	if !handles.Binds(&p.r.Caller) || !handle.Mentions(answer.Message) {
		return
	}
	message := bytes.Clone(answer.Message) // which others may hold, and Bind overwrites
	if envelope, err := rpc.ScanLenient(message); err == nil {
		answer.Message = handles.Bind(&p.r.Caller, message, &envelope)
	}
	if envelope, err := rpc.ScanLenient(answer.Message); err == nil {
		noteError(answer, &envelope)
	}
}

// noteError has an answer that has become an error count as one.
func noteError(answer *sessionless.Event, envelope *rpc.Envelope) {
	if envelope.Error.Present() {
		answer.Code, answer.Failed = rpc.CodeInternal, rpc.ErrorTypeOf(rpc.CodeInternal)
	}
}

// isLate says whether the call has timed out, when the timer has fired. It starts the timer
// for the rest of the time otherwise.
func (p *reply) isLate() bool {
	if p.rest > 0 {
		p.timer.Reset(p.rest)
		p.rest = 0
		return false
	}
	return p.rest == 0
}

func (p *reply) timedOut() sessionless.Event {
	p.endpoint.metrics.CallTimeouts.Inc()
	text := "the call took longer than " + p.endpoint.options.CallTimeout.String()
	return sessionless.Event{Message: rpc.AppendError(nil, p.call.ID(), rpc.CodeInternal, text, nil), Last: true, Code: rpc.CodeInternal, Failed: string(edge.Timeout)}
}

func (p *reply) writeJSON(answer sessionless.Event) {
	front.WriteJSON(p.w, statusOf(answer.Code), answer.Message, p.endpoint.options.WriteTimeout, p.call)
	p.r.Record.Answered(edge.ErrorType(answer.Failed))
}

// stream answers by an event stream, until it ends or the client goes. The first event may
// be nil. Events have no ids: nothing can be resumed in this revision (M-08).
func (p *reply) stream(first *sessionless.Event) {
	options := &p.endpoint.options
	events := front.StartEvents(p.w, http.StatusOK, options.WriteTimeout, p.call)
	source := *p // most calls have one body for an answer, and need nothing of this on the heap
	if first != nil {
		source.append(events, *first)
	} else {
		events.Comment()
	}
	if events.Run(p.r.Context(), options.KeepAlive, &source) {
		p.r.Record.Answered(edge.ErrorType(source.failed))
	}
}

func (p *reply) append(to *front.Events, e sessionless.Event) {
	to.Append(rpc.Event{Data: e.Message})
	p.last, p.failed = e.Last, e.Failed
}

// Gather is that of front.Source.
func (p *reply) Gather(to *front.Events) (more bool) {
	for !p.last && !to.Full() {
		next, ok := p.next()
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
	case <-p.call.Ready():
	case <-p.timer.C:
		if p.isLate() {
			p.append(to, p.timedOut())
		}
	case <-p.listens.replaced():
		p.listens.tellChanges(to, p.call.ID())
	case <-ctx.Done():
	}
}

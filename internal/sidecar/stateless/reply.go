package stateless

import (
	"net/http"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
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
	buffer   []byte           // to be written
	last     bool             // and nothing else
	failed   string           // how the call failed, if that is the last
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
			p.append(next)
			p.stream()
			return
		}
		select {
		case <-p.call.wake:
		case <-commit.C:
			// Proxies hold headers back until something follows them (T-13).
			p.buffer = append(p.buffer, rpc.KeepAlive...)
			p.stream()
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
	header := p.w.Header()
	header.Set("Content-Type", frontend.TypeJSON)
	header.Set("Content-Length", strconv.Itoa(len(answer.message)))
	p.w.WriteHeader(answer.status)
	_ = frontend.WriteInterruptible(p.call, p.w, http.NewResponseController(p.w), answer.message, p.limits.WriteTimeout) // the client has it, or is gone
	p.r.Record.Answered(edge.ErrorType(answer.failed))
}

// writeSize is how much is gathered before it is written.
const writeSize = 64 << 10

// stream answers by an event stream, until it ends or the client goes. Its events have
// no ids: nothing can be resumed in this revision (M-08).
func (p *reply) stream() {
	frontend.StartEvents(p.w)
	control := http.NewResponseController(p.w)
	alive := time.NewTimer(p.limits.KeepAlive)
	defer alive.Stop()
	for {
		p.gather()
		if len(p.buffer) == 0 {
			if !p.wait(alive) {
				return
			}
			continue
		}
		if !p.flush(control) {
			return
		}
		if p.last {
			p.r.Record.Answered(edge.ErrorType(p.failed))
			return
		}
	}
}

func (p *reply) append(e event) {
	p.buffer = rpc.AppendEvent(p.buffer, rpc.Event{Data: e.message})
	p.last, p.failed = e.last, e.failed
}

// gather takes what there is.
func (p *reply) gather() {
	for !p.last && len(p.buffer) < writeSize {
		next, ok := p.call.take()
		if !ok {
			return
		}
		p.append(next)
	}
}

// flush sends what was gathered. A client that does not take it in time is treated as
// gone.
func (p *reply) flush(control *http.ResponseController) bool {
	if frontend.WriteInterruptible(p.call, p.w, control, p.buffer, p.limits.WriteTimeout) != nil {
		return false
	}
	p.buffer = p.buffer[:0]
	if cap(p.buffer) > 2*writeSize { // a large one is not kept for the stream's life
		p.buffer = nil
	}
	return control.Flush() == nil
}

// wait waits for something to write. It says whether the stream goes on.
func (p *reply) wait(alive *time.Timer) bool {
	alive.Reset(p.limits.KeepAlive)
	select {
	case <-p.call.wake:
	case <-alive.C:
		p.buffer = append(p.buffer, rpc.KeepAlive...)
	case <-p.timeout:
		p.append(p.timedOut())
	case <-p.r.Context().Done():
		return false
	}
	return true
}

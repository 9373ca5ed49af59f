package stateless

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// nameBytes bounds what is kept of a request: its id, and the token of its progress.
const nameBytes = 8 << 10

// Endpoint answers messages of the stateless revision.
type Endpoint struct {
	options Options
	metrics *Metrics
	process *process
	crowd   crowd

	refusing atomic.Bool
}

// New returns an Endpoint. Its process is started for the first client.
func New(options Options) *Endpoint {
	options.owners = &owners{}
	e := &Endpoint{options: options, metrics: cmp.Or(options.Metrics, &Metrics{})}
	e.process = newProcess(&e.options, e.metrics)
	e.crowd.process = e.process
	return e
}

// Metrics are the counters.
func (e *Endpoint) Metrics() *Metrics { return e.metrics }

// Era finds out what the server speaks. If that is not known, it takes a process, which
// ends afterward.
func (e *Endpoint) Era(ctx context.Context) (Era, error) { return e.process.findEra(ctx) }

// Locks takes the locks of the endpoint and of its processes, and gives them back. It does not
// return while one of them is held.
func (e *Endpoint) Locks() {
	for _, running := range append(e.crowd.all(), e.process.all()...) {
		running.load()
	}
}

// Found is what the server is known to speak, or Auto.
func (e *Endpoint) Found() Era { return e.process.foundEra() }

// Refuse takes no more requests of clients, but for those that go on with what was begun
// here, and ends their subscriptions. This program can make requests until Drain.
func (e *Endpoint) Refuse() {
	e.refusing.Store(true)
	for _, running := range append(e.crowd.all(), e.process.all()...) {
		running.endListens()
	}
}

// Drain takes no more requests, ends subscriptions, and waits for calls in flight; when
// the context ends, or there are none, the process does.
func (e *Endpoint) Drain(ctx context.Context) {
	for _, running := range e.process.all() {
		if running.translator != nil {
			running.translator.AwaitParked(ctx)
		}
	}
	var others sync.WaitGroup
	others.Go(func() { e.crowd.drain(ctx) })
	e.process.drain(ctx)
	others.Wait()
}

// Close is Drain that waits for nothing.
func (e *Endpoint) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e.Drain(ctx)
}

// Serve answers a request, or takes a notification, that names its protocol version
// itself. Where it comes from has been looked at, and what it accepts as an answer.
func (e *Endpoint) Serve(w http.ResponseWriter, r *edge.Request) {
	r.Record.Front = edge.Stateless
	message := r.Messages[0]
	message.From = &r.Caller
	if message.Envelope.Kind != rpc.Request {
		// The revision has no notification that a server must see: one that a client
		// does not wait for any more is known by its connection (M-04).
		w.WriteHeader(http.StatusAccepted)
		return
	}
	id := message.Envelope.ID.Of(message.Bytes)
	c, refused, err := e.begin(r, message)
	switch {
	case refused != nil:
		refused.write(w, id)
	case errors.Is(err, errSessionsOnly):
		refuseSessionsOnly(message, e.options.TranslateSetting).write(w, id)
	case errors.Is(err, fault.ErrBusy):
		e.metrics.Refused.Inc()
		front.Unavailable(w, id, err.Error())
	case err != nil:
		if r.Context().Err() == nil { // else nobody is there to be told
			front.Unavailable(w, id, "the server does not take requests now: "+err.Error())
		}
	default:
		r.Drop()
		e.reply(w, r, c)
	}
}

// tries is how many processes may end in a row without having seen a request.
const tries = 3

// begin passes a request on, to a fresh process if the one that was there has ended
// without having seen it. Which versions are served depends on the server, so nothing is
// looked at before its era is known.
func (e *Endpoint) begin(r *edge.Request, request session.Message) (*call, *refusal, error) {
	switch goesOn := goesOnWith(request); {
	case goesOn == nil && e.refusing.Load(): // others can take it
		return nil, nil, fault.ErrDraining
	case goesOn != nil && e.options.owners.isForeign(r.Caller.Principal, goesOn):
		return nil, refuseForeign(request), nil
	}
	for try := 1; ; try++ {
		running, err := e.running(r.Context(), request)
		if err != nil {
			return nil, nil, err
		}
		if running.translator != nil {
			r.Caller.Group() // worked out once, and not by every stage that asks
		}
		if refused := checkAll(r.Context(), r.Header, request, running); refused != nil {
			return nil, refused, nil
		}
		c, err := e.call(r.Context(), running, request, outside)
		if !errors.Is(err, errGone) || try == tries {
			return c, nil, err
		}
	}
}

// running returns the process that a request goes to.
func (e *Endpoint) running(ctx context.Context, request session.Message) (*run, error) {
	defer endOnPanic()
	first, err := e.process.running(ctx)
	if err != nil {
		return nil, err
	}
	return e.crowd.choose(first, request), nil
}

// side is where a request comes from.
type side bool

const (
	outside side = false // a client of this revision makes it
	inside  side = true  // this program makes it, for a client of another one
)

func (e *Endpoint) call(ctx context.Context, running *run, request session.Message, by side) (*call, error) {
	defer endOnPanic()
	c, err := running.call(ctx, request, by)
	if err == nil && c.listen {
		e.crowd.repeat(c)
	}
	return c, err
}

func checkAll(ctx context.Context, header http.Header, request session.Message, running *run) *refusal {
	e := &request.Envelope
	if e.ID.End-e.ID.Start > nameBytes || e.ProgressToken.End-e.ProgressToken.Start > nameBytes {
		return &refusal{status: http.StatusBadRequest, code: rpc.CodeInvalidRequest, text: "id and progress token may have " + strconv.Itoa(nameBytes) + " bytes each"}
	}
	if refused := check(header, request); refused != nil {
		return refused
	}
	return running.checkArguments(ctx, header, request)
}

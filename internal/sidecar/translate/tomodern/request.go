package tomodern

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// request is a client's request, as far as the adapter has read it.
type request struct {
	session.Message
	to           sessionless.Recipient
	method       string
	capabilities capabilities
	level        level
	cuts         rpc.Edits // that take out what a server with sessions must not see
	state        rpc.Span  // of an earlier round
	responses    rpc.Span  // to the input requests of that round
	arguments    rpc.Span
}

// Members of a request that a server with sessions must not see. Those that the adapter reads
// come first.
var (
	metaCut = []string{
		rpc.MetaClientCapabilities, rpc.MetaLogLevel,
		rpc.MetaProtocolVersion, rpc.MetaClientInfo, rpc.MetaServerInfo, rpc.MetaSubscriptionID,
	}
	paramsCut = []string{"requestState", "inputResponses", "task"}
)

// read takes the request apart. The error is for the client.
func (r *request) read(offerRoots bool) error {
	e := &r.Envelope
	meta, metaErr := r.cuts.Take(r.Bytes, e.Meta, metaCut...)
	capabilities, capabilitiesErr := capabilitiesOf(r.Bytes, meta[0], offerRoots)
	level, levelErr := levelOf(r.Bytes, meta[1])
	params, paramsErr := r.cuts.Take(r.Bytes, e.Params, paramsCut...)
	found, argumentsErr := rpc.Find(r.Bytes, e.Params, "arguments")
	r.capabilities, r.level = capabilities, level
	r.state, r.responses, r.arguments = params[0], params[1], found[0]
	return cmp.Or(metaErr, capabilitiesErr, levelErr, paramsErr, argumentsErr)
}

// name is the name of the tool or prompt, or the URI of the resource.
func (r *request) name() []byte {
	if r.method == rpc.MethodReadResource {
		return r.Envelope.URI
	}
	return r.Envelope.Name
}

// translated is the request as a process gets it, with the call's number in place of its id
// and its progress token.
func (r *request) translated(c *call) []byte {
	number := strconv.AppendUint(c.digits[:0], c.number, 10)
	edits := r.cuts
	edits.Replace(r.Envelope.ID, number)
	if len(r.to.Token()) > 0 {
		edits.Replace(r.Envelope.ProgressToken, number)
	}
	if c.task != nil {
		edits.Insert(r.Bytes, r.Envelope.Params, memberTask)
	}
	return edits.Edited(r.Bytes)
}

// Call answers a request of m.From, or passes it on. The recipient gets the answer and the
// notifications that belong to the request.
func (s *Server) Call(ctx context.Context, m session.Message, to sessionless.Recipient) error {
	r := request{Message: m, to: to, method: string(m.Envelope.Method)}
	if err := r.read(s.options.OfferRoots); err != nil {
		refuse(to, rpc.CodeInvalidParams, err.Error())
		return nil
	}
	if isAboutTask(r.method) {
		refuse(to, rpc.CodeMethodNotFound, "there is no "+rpc.Clip(r.method))
		return nil
	}
	g, err := s.join(m.From, r.capabilities)
	if err != nil {
		return err
	}
	defer g.leave()
	switch {
	case r.method == "server/discover":
		return s.discover(ctx, g, to)
	case r.method == subscription.MethodListen:
		return s.listen(ctx, g, &r)
	case rpc.TakesInput(r.method) && r.state.Present():
		return s.retry(ctx, g, &r)
	}
	return s.call(ctx, g, &r)
}

// isAboutTask is for methods that no process gets. A server with sessions may have tasks, but its clients were not told
// of any.
func isAboutTask(method string) bool { return strings.HasPrefix(method, "tasks/") }

// discover answers from a process's answer to initialize.
func (s *Server) discover(ctx context.Context, g *group, to sessionless.Recipient) error {
	p, err := g.acquire(ctx, nil)
	if err != nil {
		return err
	}
	defer p.release()
	succeed(to, p.offer.discovery)
	return nil
}

// tries is how many processes may end in a row without having seen a request.
const tries = 3

// retryGone tries again if a process has ended that has not seen the request.
func (s *Server) retryGone(try func() error) error {
	for i := 1; ; i++ {
		err := try()
		switch {
		case !errors.Is(err, errGone):
			return err
		case i == tries:
			return s.busy(err)
		}
	}
}

package tomodern

import (
	"context"
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

// Methods that are not just passed on.
const (
	methodDiscover = "server/discover"
	methodListen   = subscription.MethodListen
	methodCall     = "tools/call"
	methodPrompt   = "prompts/get"
	methodRead     = "resources/read"
	methodTools    = toolindex.Method
	methodElicit   = "elicitation/create"
	methodSample   = "sampling/createMessage"
	methodRoots    = "roots/list"
	prefixTasks    = "tasks/" // which neither side may take for its own
)

// mayAsk says whether input can be asked for instead of an answer (I-01).
func mayAsk(method string) bool {
	return method == methodCall || method == methodPrompt || method == methodRead
}

// request is a client's request, as far as it was read.
type request struct {
	session.Message
	to           sessionless.Recipient
	method       string
	capabilities capabilities
	level        level
	cuts         rpc.Edits // that take out what a server with sessions must not see
	state        rpc.Span  // of an earlier round
	responses    rpc.Span  // to what was asked for in that round
	arguments    rpc.Span
}

// Members of a request that a server with sessions must not see. What is read of them
// comes first.
var (
	metaCut = []string{
		rpc.MetaClientCapabilities, rpc.MetaLogLevel,
		rpc.MetaProtocolVersion, rpc.MetaClientInfo, rpc.MetaServerInfo, rpc.MetaSubscriptionID,
	}
	paramsCut = []string{"requestState", "inputResponses", "task"}
)

// read takes a request apart. The error is for the client.
func (s *Server) read(m session.Message, to sessionless.Recipient) (*request, error) {
	e := &m.Envelope
	r := &request{Message: m, to: to, method: string(e.Method)}
	meta, err := r.cuts.Take(m.Bytes, e.Meta, metaCut...)
	if err != nil {
		return r, err
	}
	if r.capabilities, err = capabilitiesOf(m.Bytes, meta[0], s.options.OfferRoots); err != nil {
		return r, err
	}
	if r.level, err = levelOf(m.Bytes, meta[1]); err != nil {
		return r, err
	}
	params, err := r.cuts.Take(m.Bytes, e.Params, paramsCut...)
	if err != nil {
		return r, err
	}
	found, err := rpc.Find(m.Bytes, e.Params, "arguments")
	if err != nil {
		return r, err
	}
	r.state, r.responses, r.arguments = params[0], params[1], found[0]
	return r, nil
}

// name is what the request is about.
func (r *request) name() []byte {
	if r.method == methodRead {
		return r.Envelope.URI
	}
	return r.Envelope.Name
}

// translated is the request as a process gets it, with a number of ours in place of its
// id and progress token.
func (r *request) translated(number uint64) []byte {
	text := strconv.AppendUint(nil, number, 10)
	edits := append(make(rpc.Edits, 0, len(r.cuts)+2), r.cuts...)
	edits.Replace(r.Envelope.ID, text)
	if len(r.to.Token()) > 0 {
		edits.Replace(r.Envelope.ProgressToken, text)
	}
	return rpc.Edited(r.Bytes, edits...)
}

// Call answers a request of m.From, or passes it on. What is said of it goes to the recipient.
func (s *Server) Call(ctx context.Context, m session.Message, to sessionless.Recipient) error {
	r, err := s.read(m, to)
	switch {
	case err != nil:
		refuse(to, rpc.CodeInvalidParams, err.Error())
		return nil
	case strings.HasPrefix(r.method, prefixTasks):
		// A server with sessions may have tasks, but its clients were not told of any.
		refuse(to, rpc.CodeMethodNotFound, "there is no "+rpc.Clip(r.method))
		return nil
	}
	g, err := s.join(m.From, r.capabilities)
	if err != nil {
		return err
	}
	defer g.leave()
	switch {
	case r.method == methodDiscover:
		return s.discover(ctx, g, r)
	case r.method == methodListen:
		return s.listen(ctx, g, r)
	case mayAsk(r.method) && r.state.Present():
		return s.retry(ctx, g, r)
	}
	return s.call(ctx, g, r)
}

// discover answers from what a process said of itself at initialize.
func (s *Server) discover(ctx context.Context, g *group, r *request) error {
	w, err := g.acquire(ctx, nil)
	if err != nil {
		return err
	}
	defer w.release()
	r.to.Answer(rpc.AppendResult(nil, r.to.ID(), w.hello.discovery), 0, "")
	return nil
}

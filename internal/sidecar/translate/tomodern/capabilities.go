package tomodern

import (
	"errors"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// capabilities are what a client can be asked for. Others that it may have say nothing
// to a server with sessions, or nothing that could be kept on the way, such as tasks;
// so clients that differ in these share processes.
type capabilities struct {
	form, url       bool // of elicitation
	sampling        bool
	samplingTools   bool
	samplingContext bool
	roots           bool
}

// capabilitiesOf are those that stand in a request.
func capabilitiesOf(text []byte, at rpc.Span, offerRoots bool) (capabilities, error) {
	var c capabilities
	kinds, err := rpc.Find(text, at, "elicitation", "sampling", "roots")
	if err != nil {
		return c, err
	}
	modes, elicitErr := rpc.Find(text, kinds[0], "form", "url")
	uses, samplingErr := rpc.Find(text, kinds[1], "tools", "context")
	if err := errors.Join(elicitErr, samplingErr); err != nil {
		return c, err
	}
	if kinds[0].IsObject(text) {
		c.url = modes[1].Present()
		c.form = modes[0].Present() || !c.url // neither means what there was first
	}
	if kinds[1].IsObject(text) {
		c.sampling, c.samplingTools, c.samplingContext = true, uses[0].Present(), uses[1].Present()
	}
	c.roots = offerRoots && kinds[2].IsObject(text)
	return c, nil
}

// ask says whether a server may ask these clients for anything.
func (c capabilities) ask() bool { return c.form || c.url || c.sampling || c.roots }

// text is what a server is told at initialize. Roots never change: nobody would tell.
func (c capabilities) text() string {
	var members []string
	if c.form || c.url {
		members = append(members, `"elicitation":`+flags("form", c.form, "url", c.url))
	}
	if c.sampling {
		members = append(members, `"sampling":`+flags("tools", c.samplingTools, "context", c.samplingContext))
	}
	if c.roots {
		members = append(members, `"roots":{}`)
	}
	return rpc.Object(members...)
}

func flags(a string, hasA bool, b string, hasB bool) string {
	var members []string
	if hasA {
		members = append(members, `"`+a+`":{}`)
	}
	if hasB {
		members = append(members, `"`+b+`":{}`)
	}
	return rpc.Object(members...)
}

// allow says whether a server may ask for what it asks for (I-03), and if not, why.
func (c capabilities) allow(request session.Message) (code int, reason string) {
	switch string(request.Envelope.Method) {
	case methodElicit:
		return c.allowElicitation(request)
	case methodSample:
		return c.allowSampling(request)
	case methodRoots:
		if c.roots {
			return 0, ""
		}
	}
	return rpc.CodeMethodNotFound, "the client has no such method"
}

func (c capabilities) allowElicitation(request session.Message) (code int, reason string) {
	found, err := rpc.Find(request.Bytes, request.Envelope.Params, "mode")
	url := err == nil && string(rpc.Text(request.Bytes, found[0])) == "url"
	switch {
	case !c.form && !c.url:
		return rpc.CodeMethodNotFound, "the client has no elicitation"
	case url && !c.url, !url && !c.form:
		return rpc.CodeInvalidParams, "the client does not have this mode of elicitation"
	}
	return 0, ""
}

func (c capabilities) allowSampling(request session.Message) (code int, reason string) {
	found, err := rpc.Find(request.Bytes, request.Envelope.Params, "tools")
	switch {
	case !c.sampling:
		return rpc.CodeMethodNotFound, "the client has no sampling"
	case !c.samplingTools && (err != nil || found[0].Present()):
		return rpc.CodeInvalidParams, "the client has no tools for sampling"
	}
	return 0, ""
}

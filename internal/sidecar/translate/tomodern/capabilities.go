package tomodern

import (
	"cmp"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// capabilities are the kinds of input that a client can give. A server with sessions does not
// know a client's other capabilities, or the adapter cannot keep them on the way, such as
// tasks. So clients that differ in these share processes.
type capabilities struct {
	form, url       bool // of elicitation
	sampling        bool
	samplingTools   bool
	samplingContext bool
	roots           bool
}

// capabilitiesOf reads the capabilities in a request.
func capabilitiesOf(text []byte, at rpc.Span, offerRoots bool) (capabilities, error) {
	var c capabilities
	kinds, err := rpc.Find(text, at, "elicitation", "sampling", "roots")
	modes, elicitErr := rpc.Find(text, kinds[0], "form", "url")
	uses, samplingErr := rpc.Find(text, kinds[1], "tools", "context")
	if kinds[0].IsObject(text) {
		c.url = modes[1].Present()
		c.form = modes[0].Present() || !c.url // neither means form
	}
	if kinds[1].IsObject(text) {
		c.sampling, c.samplingTools, c.samplingContext = true, uses[0].Present(), uses[1].Present()
	}
	c.roots = offerRoots && kinds[2].IsObject(text)
	return c, cmp.Or(err, elicitErr, samplingErr)
}

// any says whether a server may ask these clients for any input.
func (c capabilities) any() bool { return c.form || c.url || c.sampling || c.roots }

// text is how the adapter declares the capabilities at initialize. Roots never change, because
// clients without sessions do not announce that.
func (c capabilities) text() string {
	var kinds, modes, uses []string
	add := func(to *[]string, has bool, member string) {
		if has {
			*to = append(*to, member)
		}
	}
	add(&modes, c.form, `"form":{}`)
	add(&modes, c.url, `"url":{}`)
	add(&uses, c.samplingTools, `"tools":{}`)
	add(&uses, c.samplingContext, `"context":{}`)
	add(&kinds, c.form || c.url, `"elicitation":`+rpc.Object(modes...))
	add(&kinds, c.sampling, `"sampling":`+rpc.Object(uses...))
	add(&kinds, c.roots, `"roots":{}`)
	return rpc.Object(kinds...)
}

// allow says whether a server may make a request of the client (I-03), and if not, why.
func (c capabilities) allow(request session.Message) (code int, reason string) {
	text, params := request.Bytes, request.Envelope.Params
	switch method := string(request.Envelope.Method); {
	case method == rpc.MethodElicit && (c.form || c.url):
		if !c.allowMode(text, params) {
			return rpc.CodeInvalidParams, "the client does not have this mode of elicitation"
		}
	case method == rpc.MethodSample && c.sampling:
		found, err := rpc.Find(text, params, "tools")
		if !c.samplingTools && (err != nil || found[0].Present()) {
			return rpc.CodeInvalidParams, "the client has no tools for sampling"
		}
	case method == rpc.MethodListRoots && c.roots:
	default:
		return rpc.CodeMethodNotFound, "the client does not have the capability for this method"
	}
	return 0, ""
}

// allowMode says whether the client has the mode of an elicitation.
func (c capabilities) allowMode(text []byte, params rpc.Span) bool {
	found, err := rpc.Find(text, params, "mode")
	if err == nil && string(rpc.Text(text, found[0])) == "url" {
		return c.url
	}
	return c.form
}

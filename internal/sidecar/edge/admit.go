package edge

import (
	"net/http"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
)

// Headers by which a browser and a server agree on what a web page may do.
const (
	headerOrigin         = "Origin"
	headerRequestMethod  = "Access-Control-Request-Method"
	headerRequestHeaders = "Access-Control-Request-Headers"
	headerAllowOrigin    = "Access-Control-Allow-Origin"
	headerAllowMethods   = "Access-Control-Allow-Methods"
	headerAllowHeaders   = "Access-Control-Allow-Headers"
	headerExposeHeaders  = "Access-Control-Expose-Headers"
	headerMaxAge         = "Access-Control-Max-Age"
)

const (
	// exposed are the headers of an answer that a page has a use for.
	exposed = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"
	// maxAge is for how many seconds a browser remembers what is allowed: the most
	// that browsers take.
	maxAge = "7200"
	// requestHeaderBytes is how much of a list of headers is worth repeating.
	requestHeaderBytes = 4096
)

// Origins admits requests by their Origin and Host headers.
type Origins struct {
	// Policy returns what is allowed at the moment.
	Policy func() *origin.Policy
	// Names are what the user sets to change it.
	Names origin.Names
}

// Admit says whether a request may come from where it does (T-02, X-04). If not, or
// if a browser only asks beforehand whether a page may use the methods here, it has
// answered the request. Answers to pages say that they may be read; cookies and other
// credentials that the browser itself would add are never asked for.
func (o *Origins) Admit(w http.ResponseWriter, r *http.Request, methods string) bool {
	if err := o.Policy().Check(r, &o.Names); err != nil {
		frontend.Refuse(w, http.StatusForbidden, nil, rpc.CodeInvalidRequest, err.Error())
		return false
	}
	from := r.Header[headerOrigin]
	if len(from) != 1 { // it is no page that asks
		return true
	}
	header := w.Header()
	header.Set(headerAllowOrigin, from[0])
	if r.Method != http.MethodOptions || r.Header.Get(headerRequestMethod) == "" {
		header.Set(headerExposeHeaders, exposed)
		header.Set("Vary", headerOrigin)
		return true
	}
	header.Set("Vary", strings.Join([]string{headerOrigin, headerRequestMethod, headerRequestHeaders}, ", "))
	header.Set(headerAllowMethods, methods)
	if asked := strings.Join(r.Header.Values(headerRequestHeaders), ","); isTokenList(asked) {
		header.Set(headerAllowHeaders, asked)
	}
	header.Set(headerMaxAge, maxAge)
	w.WriteHeader(http.StatusNoContent)
	return false
}

// isTokenList says whether a text is a list of what headers can be called.
func isTokenList(text string) bool {
	if text == "" || len(text) > requestHeaderBytes {
		return false
	}
	for part := range strings.SplitSeq(text, ",") {
		if name := strings.Trim(part, " \t"); name == "" || strings.ContainsFunc(name, isNoTokenRune) {
			return false
		}
	}
	return true
}

func isNoTokenRune(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

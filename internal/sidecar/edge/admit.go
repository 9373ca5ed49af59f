package edge

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
)

// Headers by which a browser asks what a web page may do.
const (
	headerOrigin         = "Origin"
	headerRequestMethod  = "Access-Control-Request-Method"
	headerRequestHeaders = "Access-Control-Request-Headers"
)

const (
	// exposed lists the headers of an answer that a web page may read.
	exposed = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"
	// maxAge is how many seconds a browser remembers what the adapter allows. Browsers
	// accept no more.
	maxAge = "7200"
	// requestHeaderBytes bounds the list of headers that an answer repeats to a browser.
	requestHeaderBytes = 4096
)

// Origins admits requests by their Origin and Host headers.
type Origins struct {
	// Policy returns the hosts and origins that are allowed now.
	Policy func() *origin.Policy
	// Names are the settings by which a user changes the policy. Refusals name them.
	Names origin.Names

	usual atomic.Pointer[usualHost]
}

// usualHost is the first Host that a policy has allowed. Nearly all requests name that one,
// and a comparison with it takes less time than the policy.
type usualHost struct {
	policy *origin.Policy // never changes: new settings bring a new policy
	host   string
}

// usualBytes is the longest Host that Origins keeps.
const usualBytes = 256

// check has the policy check a request. from holds the request's Origin headers.
func (o *Origins) check(r *http.Request, from []string) error {
	policy, usual := o.Policy(), o.usual.Load()
	known := usual != nil && usual.policy == policy
	if known && usual.host == r.Host && len(from) == 0 {
		return nil
	}
	err := policy.Check(r, &o.Names)
	if err == nil && !known && len(r.Host) <= usualBytes {
		o.usual.Store(&usualHost{policy, strings.Clone(r.Host)})
	}
	return err
}

// Admit checks Host and Origin, so that a page that a user has open in a browser cannot
// reach the adapter by DNS rebinding. If Admit returns false it has answered the request:
// with a refusal, or because a browser asked in advance whether a page may use the
// methods. Answers tell the browser that the page may read them. They never allow cookies or
// other credentials.
func (o *Origins) Admit(w http.ResponseWriter, r *http.Request, methods string) bool {
	from := r.Header[headerOrigin]
	if err := o.check(r, from); err != nil {
		front.Refuse(w, http.StatusForbidden, nil, rpc.CodeInvalidRequest, err.Error())
		return false
	}
	if len(from) != 1 { // browsers send exactly one for a page
		return true
	}
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", from[0])
	if r.Method != http.MethodOptions || r.Header.Get(headerRequestMethod) == "" {
		header.Set("Access-Control-Expose-Headers", exposed)
		header.Set("Vary", headerOrigin)
		return true
	}
	header.Set("Vary", strings.Join([]string{headerOrigin, headerRequestMethod, headerRequestHeaders}, ", "))
	header.Set("Access-Control-Allow-Methods", methods)
	if asked := strings.Join(r.Header.Values(headerRequestHeaders), ","); isTokenList(asked) {
		header.Set("Access-Control-Allow-Headers", asked)
	}
	header.Set("Access-Control-Max-Age", maxAge)
	w.WriteHeader(http.StatusNoContent)
	return false
}

// isTokenList reports whether a text is a list of header names.
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

package stateless

import (
	"net/http"
	"slices"
	"strings"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Headers that repeat what stands in the body.
const (
	headerMethod = "Mcp-Method"
	headerName   = "Mcp-Name"
)

// refusal is why a request is not passed on.
type refusal struct {
	status int
	code   int
	text   string
	data   []byte // of the error; may be nil
}

func (r *refusal) write(w http.ResponseWriter, id []byte) {
	front.RefuseWith(w, r.status, id, r.code, r.text, r.data)
}

func mismatch(text string) *refusal {
	return &refusal{status: http.StatusBadRequest, code: rpc.CodeHeaderMismatch, text: text}
}

func invalidParams(text string) *refusal {
	return &refusal{status: http.StatusBadRequest, code: rpc.CodeInvalidParams, text: text}
}

// refuseSessionsOnly is for clients of a server that has sessions only. Clients that know
// both eras take nothing else for a reason to open a session, not all of them: neither a
// result nor an error that lists older revisions.
func refuseSessionsOnly(request session.Message, setting string) *refusal {
	text := "this server has sessions only: begin with initialize. " +
		"To serve clients that speak only revision " + front.Revision20260728 + ", set " + setting + " to Translate"
	if string(request.Envelope.Method) == methodDiscover {
		return &refusal{status: http.StatusNotFound, code: rpc.CodeMethodNotFound, text: text}
	}
	return &refusal{status: http.StatusBadRequest, code: rpc.CodeInvalidRequest, text: text}
}

// check says why a request cannot be passed on, or returns nil. The first reason wins,
// and a version that is not served wins over all that is to be read by its rules (B-01).
// What it takes the server's tools to know is not checked here.
func check(header http.Header, request session.Message) *refusal {
	for _, step := range []func(http.Header, session.Message) *refusal{checkVersion, checkMeta, checkMethod, checkName, checkRemoved} {
		if refused := step(header, request); refused != nil {
			return refused
		}
	}
	return nil
}

// checkVersion is about the version header, which must be that of the body (M-11), and
// about the version itself (L-22).
func checkVersion(header http.Header, request session.Message) *refusal {
	version := string(request.Envelope.ProtocolVersion)
	switch value, ok := only(header, front.HeaderRevision); {
	case !ok:
		return mismatch("the header MCP-Protocol-Version must be there, once")
	case value != version:
		return mismatch("the header MCP-Protocol-Version is not the protocolVersion in params._meta")
	case version == front.Revision20260728:
		return nil
	}
	supported := []string{front.Revision20260728}
	if !front.IsServed(version) {
		// Whoever has an older one has it without an envelope, and is not to be told to
		// go on as it does.
		older := front.Revisions()
		slices.Reverse(older)
		supported = append(supported, older...)
	}
	return &refusal{http.StatusBadRequest, rpc.CodeUnsupportedRevision, "unsupported protocol version", front.UnsupportedData(version, supported...)}
}

// checkMeta is about what every request says of its client (L-21).
func checkMeta(_ http.Header, request session.Message) *refusal {
	found, err := rpc.Find(request.Bytes, request.Envelope.Meta, rpc.MetaClientCapabilities)
	switch {
	case err != nil:
		return invalidParams("params._meta: " + err.Error())
	case !found[0].Present():
		return invalidParams("params._meta must have " + rpc.MetaClientCapabilities)
	case !found[0].IsObject(request.Bytes):
		return invalidParams(rpc.MetaClientCapabilities + " must be an object")
	}
	return nil
}

// checkMethod is about the header that repeats the method (M-12).
func checkMethod(header http.Header, request session.Message) *refusal {
	switch value, ok := only(header, headerMethod); {
	case !ok:
		return mismatch("the header " + headerMethod + " must be there, once")
	case value != string(request.Envelope.Method):
		return mismatch("the header " + headerMethod + " is not the method of the request")
	}
	return nil
}

// checkName is about the header that repeats what the method is about (M-13).
func checkName(header http.Header, request session.Message) *refusal {
	want, member := nameOf(request)
	if member == "" {
		return nil
	}
	values := header.Values(headerName)
	if want == nil && len(values) == 0 {
		return nil // the server knows best what to say to a request without one
	}
	value, ok := only(header, headerName)
	if !ok {
		return mismatch("the header " + headerName + " must be there, once")
	}
	name, ok := paramheader.Decode(value)
	switch {
	case !ok:
		return mismatch("the header " + headerName + " has invalid Base64")
	case want == nil || name != string(want):
		return mismatch("the header " + headerName + " is not " + member)
	}
	return nil
}

// nameOf is what a request is about, and which member says so, for methods that have
// a header for it. The name is nil if it is not there or no string.
func nameOf(request session.Message) (name []byte, member string) {
	switch string(request.Envelope.Method) {
	case "tools/call", "prompts/get":
		return request.Envelope.Name, "params.name"
	case "resources/read":
		return request.Envelope.URI, "params.uri"
	case "tasks/get", "tasks/update", "tasks/cancel":
		found, err := rpc.Find(request.Bytes, request.Envelope.Params, "taskId")
		if err != nil {
			return nil, "params.taskId"
		}
		return rpc.Text(request.Bytes, found[0]), "params.taskId"
	}
	return nil, ""
}

// checkRemoved is about methods that other revisions have (M-21). Servers of both eras
// would take them for the beginning of a session.
func checkRemoved(_ http.Header, request session.Message) *refusal {
	switch method := string(request.Envelope.Method); method {
	case "initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		return &refusal{status: http.StatusNotFound, code: rpc.CodeMethodNotFound, text: "protocol revision " + front.Revision20260728 + " has no " + method}
	}
	return nil
}

// only is the value of a header that must be there once.
func only(header http.Header, name string) (string, bool) {
	values := header.Values(name)
	if len(values) != 1 {
		return "", false
	}
	return strings.Trim(values[0], " \t"), true // M-14
}

// statusOf is the HTTP status of an answer of the server's, if it comes before any
// other message (M-20).
func statusOf(code int) int {
	switch code {
	case rpc.CodeMethodNotFound:
		return http.StatusNotFound
	case rpc.CodeHeaderMismatch, rpc.CodeMissingCapability, rpc.CodeUnsupportedRevision:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

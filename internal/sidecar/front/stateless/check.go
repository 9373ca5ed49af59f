package stateless

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/handle"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// nameBytes bounds what is kept of a request: its id, and the token of its progress.
const nameBytes = 8 << 10

// refusal is why a request does not reach the server.
type refusal struct {
	status int
	code   int
	text   string
	data   []byte // of the error; may be nil
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) write(w http.ResponseWriter, id []byte) {
	front.RefuseWith(w, r.status, id, r.code, r.text, r.data)
}

func mismatch(header, problem string) *refusal {
	return &refusal{status: http.StatusBadRequest, code: rpc.CodeHeaderMismatch, text: "the header " + header + " " + problem}
}

func invalidParams(text string) *refusal {
	return &refusal{status: http.StatusBadRequest, code: rpc.CodeInvalidParams, text: text}
}

// refuseSessionsOnly is for clients of a server that has sessions only. Not all clients that
// know both eras open a session after a result, or after an error that lists older revisions:
// they do so after these errors.
func refuseSessionsOnly(request *session.Message, setting string) *refusal {
	text := "this server has sessions only: begin with initialize. " +
		"To serve clients that speak only revision " + front.Revision20260728 + ", set " + setting + " to Translate"
	if string(request.Envelope.Method) == "server/discover" {
		return &refusal{status: http.StatusNotFound, code: rpc.CodeMethodNotFound, text: text}
	}
	return &refusal{status: http.StatusBadRequest, code: rpc.CodeInvalidRequest, text: text}
}

// refuseForeign answers as servers do to a task or a state that they do not know.
func refuseForeign(request *session.Message) *refusal {
	err := handle.ErrState
	if method := string(request.Envelope.Method); strings.HasPrefix(method, "tasks/") || method == subscription.MethodListen {
		err = handle.ErrTask
	}
	return &refusal{status: http.StatusOK, code: rpc.CodeInvalidParams, text: err.Error()}
}

// check returns nil, or why a request is refused. The first reason wins, and a version that
// is not served comes before all that depends on the version (B-01).
func check(ctx context.Context, header http.Header, request *session.Message, tools sessionless.Tools) *refusal {
	for _, step := range [...]func(http.Header, *session.Message) *refusal{checkNames, checkVersion, checkMeta, checkMethod, checkName, checkRemoved} {
		if refused := step(header, request); refused != nil {
			return refused
		}
	}
	return checkArguments(ctx, header, request, tools)
}

func checkNames(_ http.Header, request *session.Message) *refusal {
	e := &request.Envelope
	if e.ID.End-e.ID.Start > nameBytes || e.ProgressToken.End-e.ProgressToken.Start > nameBytes {
		return &refusal{status: http.StatusBadRequest, code: rpc.CodeInvalidRequest, text: "id and progress token may have " + strconv.Itoa(nameBytes) + " bytes each"}
	}
	return nil
}

// checkVersion checks that the version header is that of the body (M-11), and that the
// version is served (L-22).
func checkVersion(header http.Header, request *session.Message) *refusal {
	const spelled = "MCP-Protocol-Version" // as the specification has it
	version, refused := only(header, front.HeaderRevision)
	switch {
	case refused != nil:
		return mismatch(spelled, "must be there, once")
	case version != string(request.Envelope.ProtocolVersion):
		return mismatch(spelled, "is not the protocolVersion in params._meta")
	case version == front.Revision20260728:
		return nil
	}
	supported := []string{front.Revision20260728}
	if !front.IsServed(version) {
		// A client that asks for an older revision in an envelope must not read that its
		// revision is supported: older revisions have no envelopes.
		older := front.Revisions()
		slices.Reverse(older)
		supported = append(supported, older...)
	}
	return &refusal{http.StatusBadRequest, rpc.CodeUnsupportedRevision, "unsupported protocol version", front.UnsupportedData(version, supported...)}
}

// checkMeta checks the client's capabilities, which every request has (L-21).
func checkMeta(_ http.Header, request *session.Message) *refusal {
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

// checkMethod checks the header that repeats the method (M-12).
func checkMethod(header http.Header, request *session.Message) *refusal {
	value, refused := only(header, front.HeaderMethod)
	if refused == nil && value != string(request.Envelope.Method) {
		return mismatch(front.HeaderMethod, "is not the method of the request")
	}
	return refused
}

// checkName checks the header that repeats the name of a tool, resource or task (M-13).
func checkName(header http.Header, request *session.Message) *refusal {
	want, member := rpc.NameOf(request.Bytes, &request.Envelope)
	if member == "" {
		return nil
	}
	if want == nil && len(header[front.HeaderName]) == 0 {
		return nil // the server refuses a request without a name
	}
	name, refused := decoded(header, front.HeaderName)
	if refused == nil && (want == nil || name != string(want)) {
		return mismatch(front.HeaderName, "is not "+member)
	}
	return refused
}

// checkRemoved refuses methods that only other revisions have (M-21). Servers of both eras
// would take them for the beginning of a session.
func checkRemoved(_ http.Header, request *session.Message) *refusal {
	if method := request.Envelope.Method; isRemoved(method) {
		return &refusal{status: http.StatusNotFound, code: rpc.CodeMethodNotFound, text: "protocol revision " + front.Revision20260728 + " has no " + string(method)}
	}
	return nil
}

func isRemoved(method []byte) bool {
	switch string(method) {
	case "initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		return true
	}
	return false
}

// MayReachServer reports whether a message reaches the server if its headers and capabilities are right. All others
// are answered without it.
func MayReachServer(message *session.Message) bool {
	e := &message.Envelope
	return e.Kind == rpc.Request && string(e.ProtocolVersion) == front.Revision20260728 && !isRemoved(e.Method)
}

// only is the value of a header that must be there once.
func only(header http.Header, name string) (string, *refusal) {
	values := header.Values(name)
	if len(values) != 1 {
		return "", mismatch(name, "must be there, once")
	}
	return strings.Trim(values[0], " \t"), nil // M-14
}

// decoded is only for a header whose value may be encoded.
func decoded(header http.Header, name string) (string, *refusal) {
	value, refused := only(header, name)
	if refused != nil {
		return "", refused
	}
	value, ok := paramheader.Decode(value)
	if !ok {
		return "", mismatch(name, "has invalid Base64")
	}
	return value, nil
}

// statusOf is the HTTP status of an answer of the server with this error code, if it comes
// before any other message (M-20).
func statusOf(code int) int {
	switch code {
	case rpc.CodeMethodNotFound:
		return http.StatusNotFound
	case rpc.CodeHeaderMismatch, rpc.CodeMissingCapability, rpc.CodeUnsupportedRevision:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

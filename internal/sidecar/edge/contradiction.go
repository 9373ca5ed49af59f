package edge

import (
	"net/http"
	"strings"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// contradicted refuses a message of 2026-07-28 whose headers say something else than the message, which the rules
// are about to be asked about. A server must compare them, too, but not all servers do, and proxies may have
// decided by a header. A front end that needs a header refuses a request without it later.
func contradicted(r *Request) *Refusal {
	if r.Caller.Rights() == nil || r.Batch || len(r.Messages) != 1 || r.Messages[0].Envelope.ProtocolVersion == nil {
		return nil
	}
	header := contradiction(r.Header, &r.Messages[0])
	if header == "" {
		return nil
	}
	return &Refusal{Status: http.StatusBadRequest, Code: rpc.CodeHeaderMismatch, Text: "the header " + header + " is not what the message says"}
}

// contradiction returns the header that names another protocol version, another method, or another tool, prompt,
// resource or task than the message. It is empty if there is none.
func contradiction(header http.Header, message *session.Message) string {
	e := &message.Envelope
	if !repeats(header[front.HeaderRevision], e.ProtocolVersion) {
		return "MCP-Protocol-Version" // as the specification has it
	}
	if !repeats(header[front.HeaderMethod], e.Method) {
		return front.HeaderMethod
	}
	names := header[front.HeaderName]
	if len(names) == 0 {
		return ""
	}
	want, _ := rpc.NameOf(message.Bytes, e)
	name, ok := paramheader.Decode(strings.Trim(names[0], blanks))
	if len(names) > 1 || !ok || want == nil || name != string(want) {
		return front.HeaderName
	}
	return ""
}

// repeats reports whether a header is not there, or stands once and has the value.
func repeats(values []string, value []byte) bool {
	return len(values) == 0 || len(values) == 1 && strings.Trim(values[0], blanks) == string(value)
}

// blanks may stand around the value of a header.
const blanks = " \t"

package rpc

import "fmt"

// Error codes of JSON-RPC.
const (
	CodeParse          = -32700 // not JSON
	CodeInvalidRequest = -32600 // JSON, but not a message
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
)

// Error codes of revisions of MCP with sessions.
const (
	CodeUserRejected     = -1 // the answer to a request for sampling that the user refuses
	CodeResourceNotFound = -32002
	CodeURLElicitation   = -32042 // the user must visit URLs before the call
	CodeRequestCancelled = -32800 // the answer to a request that the client has cancelled
)

// Codes of the adapter, for requests that their caller may not make. They are outside the range that the
// protocol reserves.
const (
	CodeUnauthorized = 401
	CodeForbidden    = 403
)

// Error codes of revision 2026-07-28 (J-16).
const (
	CodeHeaderMismatch      = -32020 // a header does not say what the body says
	CodeMissingCapability   = -32021 // it takes a client that can do more
	CodeUnsupportedRevision = -32022
)

// Error says why bytes are not a message.
type Error struct {
	Code   int
	Offset int    // where in the bytes it was noticed
	Reason string // one of a fixed set, safe to show to any client
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s (at byte %d)", e.Reason, e.Offset)
}

func syntaxError(offset int, reason string) *Error {
	return &Error{Code: CodeParse, Offset: offset, Reason: reason}
}

func invalid(offset int, reason string) *Error {
	return &Error{Code: CodeInvalidRequest, Offset: offset, Reason: reason}
}

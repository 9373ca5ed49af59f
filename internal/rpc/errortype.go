package rpc

import "strconv"

// ToolError is the error type of a call whose tool says that it failed.
const ToolError = "tool_error"

// otherError is the error type of codes that no specification has.
const otherError = "_OTHER"

// errorTypes are the codes of JSON-RPC and of all revisions of MCP, and those of the adapter, as text.
var errorTypes = func() map[int]string {
	types := map[int]string{}
	for _, code := range []int{
		CodeParse, CodeInvalidRequest, CodeMethodNotFound, CodeInvalidParams, CodeInternal,
		-32000, -32001, CodeResourceNotFound, CodeURLElicitation,
		CodeHeaderMismatch, CodeMissingCapability, CodeUnsupportedRevision,
		CodeUnauthorized, CodeForbidden,
	} {
		types[code] = strconv.Itoa(code)
	}
	return types
}()

// ErrorTypeOf is the error type of a code: one of few, whatever servers think of.
func ErrorTypeOf(code int) string {
	if known, ok := errorTypes[code]; ok {
		return known
	}
	return otherError
}

// ErrorCode is the code of the error in a response, or 0.
func ErrorCode(answer []byte, e *Envelope) int {
	if !e.Error.Present() { // nearly always
		return 0
	}
	found, err := Find(answer, e.Error, "code")
	if err != nil {
		return 0
	}
	code, err := strconv.Atoi(string(found[0].Of(answer)))
	if err != nil {
		return 0
	}
	return code
}

// ErrorType says how a call failed that is answered by the message, or returns "". Results
// are looked into only for calls of tools.
func ErrorType(answer []byte, e *Envelope, tool bool) string {
	switch {
	case e.Error.Present():
		return ErrorTypeOf(ErrorCode(answer, e))
	case !tool || e.Succeeds: // nearly always
		return ""
	}
	if found, err := Find(answer, e.Result, nameIsError); err == nil && string(found[0].Of(answer)) == "true" {
		return ToolError
	}
	return ""
}

const nameIsError = "isError"

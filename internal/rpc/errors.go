package rpc

import "fmt"

// JSON-RPC error codes that a message can be refused with.
const (
	CodeParse          = -32700 // not JSON
	CodeInvalidRequest = -32600 // JSON, but not a message
)

// Error says why bytes are not a message.
type Error struct {
	Code   int
	Offset int    // where in the bytes it was noticed
	Reason string // one of a fixed set, safe to show to anybody
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

package rpc

import "bytes"

// classify decides what the message is, once all members are known.
func (s *scanner) classify() *Error {
	e := &s.envelope
	if string(s.version.Of(s.b)) != `"2.0"` {
		return invalid(s.version.Start, `this is no JSON-RPC message: jsonrpc must be "2.0"`)
	}
	answers := e.Result.Present() || e.Error.Present()
	switch {
	case e.Method != nil && answers:
		return invalid(0, "a message has a method, or a result or error, but not both")
	case e.Method != nil && e.ID.Present():
		e.Kind = Request
		e.ProgressToken = s.metaToken
	case e.Method != nil:
		e.Kind = Notification
		e.ProgressToken = s.paramToken
	case answers:
		return s.classifyResponse()
	default:
		return invalid(0, "a message has a method, a result or an error")
	}
	if e.ID.Present() && !isID(e.ID.Of(s.b)) {
		return invalid(e.ID.Start, "id must be a string or an integer")
	}
	return nil
}

// dropAbsent drops the one of result and error that stands for none.
func (s *scanner) dropAbsent() {
	e := &s.envelope
	switch {
	case !e.Result.Present() || !e.Error.Present():
	case s.absent(e.Error):
		e.Error = Span{}
	case s.absent(e.Result):
		e.Result = Span{}
	}
}

func (s *scanner) classifyResponse() *Error {
	e := &s.envelope
	e.Kind = Response
	s.dropAbsent()
	if e.Result.Present() && e.Error.Present() {
		return invalid(e.Error.Start, "a response has a result or an error, but not both")
	}
	if e.Error.Present() && s.b[e.Error.Start] != '{' {
		return invalid(e.Error.Start, "error must be an object")
	}
	// Servers that could not read a request answer with an error about no
	// request at all; some spell that null.
	if e.Error.Present() && string(e.ID.Of(s.b)) == "null" {
		e.ID = Span{}
	}
	switch {
	case !e.ID.Present() && e.Result.Present():
		return invalid(0, "a result must have an id")
	case e.ID.Present() && !isID(e.ID.Of(s.b)):
		return invalid(e.ID.Start, "id must be a string or an integer")
	}
	return nil
}

// isID says whether a value is a string or an integer. A number with a fraction or
// exponent is not: peers would echo it in another spelling.
func isID(raw []byte) bool {
	switch c := raw[0]; {
	case c == '"':
		return true
	case c == '-' || '0' <= c && c <= '9':
		return !bytes.ContainsAny(raw, ".eE")
	default:
		return false
	}
}

package tolegacy

import (
	"fmt"
	"slices"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// converse has a call answered, however many rounds that takes. Each round is one request to
// the modern server: the adapter repeats a call only if the server wants it.
func (s *Server) converse(c *call, exchange Exchange) {
	defer s.finish()
	passOn := func(notification []byte) { s.passOn(c, notification) }
	for {
		answer := follow(c, exchange, passOn)
		if answer == nil {
			return
		}
		next, more := s.consider(c, answer)
		if !more {
			return
		}
		var err error
		next.From = c.sender
		exchange, err = s.options.Modern.Call(c, next)
		if err != nil {
			s.fail(c, err.Error())
			return
		}
	}
}

// consider looks at an answer of the modern server. It passes the answer on to the client, or
// returns another request.
func (s *Server) consider(c *call, text []byte) (next session.Message, more bool) {
	answer := scanned(text)
	result := answer.Envelope.Result
	typeAt := rpc.Lookup(text, result, "resultType") // J-14
	kind := rpc.Text(text, typeAt)
	switch {
	case answer.Envelope.Kind != rpc.Response:
		s.bad(c, "cannot be read")
	case answer.Envelope.Error.Present():
		s.answer(c, scanned(translateError(answer, c.id())))
	case !result.IsObject(text):
		s.bad(c, "is not an object")
	case string(kind) == "complete" || !typeAt.Present(): // J-15
		s.answer(c, c.complete(answer))
	case string(kind) != "input_required":
		s.bad(c, fmt.Sprintf("is of a type that was not agreed on: %q", rpc.Clip(kind)))
	case !rpc.TakesInput(string(c.method())):
		s.bad(c, "asks for input, which it must not for "+rpc.Clip(c.method()))
	default:
		return s.nextRound(c, answer)
	}
	return session.Message{}, false
}

// bad ends a call whose answer cannot be understood.
func (s *Server) bad(c *call, why string) {
	s.metrics.BadResults.Inc()
	s.fail(c, "the server's answer "+why)
}

// nextRound gets the input that an answer asks for, and returns the request that has it.
func (s *Server) nextRound(c *call, answer session.Message) (next session.Message, more bool) {
	text, result := answer.Bytes, answer.Envelope.Result
	inputs, state := rpc.Lookup(text, result, "inputRequests"), rpc.Lookup(text, result, "requestState")
	var responses []byte
	var stopped string
	switch {
	case inputs.IsObject(text):
		responses, stopped = s.ask(c, text, inputs)
	case state.Present():
		stopped = s.pause(c)
	default:
		s.bad(c, "asks for input and does not say for which")
	}
	if stopped != "" {
		s.stop(c, stopped)
	}
	if c.Err() != nil {
		return session.Message{}, false
	}
	return c.retry(responses, state.Of(text)), true
}

// retry is the same request once more, with answers for the server and the state that it
// wants back byte for byte (I-05).
func (c *call) retry(responses, state []byte) session.Message {
	text, params := c.request.Bytes, c.request.Envelope.Params
	var edits rpc.Edits
	if responses != nil {
		edits.Insert(text, params, slices.Concat([]byte(`"inputResponses":`), responses))
	}
	if len(state) > 0 {
		edits.Insert(text, params, slices.Concat([]byte(`"requestState":`), state))
	}
	return scanned(edits.Edited(text))
}

// pause waits before a call is repeated for a server that wants it later. It returns why the
// call cannot go on.
func (s *Server) pause(c *call) (stopped string) {
	if c.retries >= s.options.Limits.Retries {
		return fmt.Sprintf("the server asked for the call to be repeated more than %d times", s.options.Limits.Retries)
	}
	delay := s.options.Limits.RetryDelay << c.retries
	c.retries++
	s.metrics.Retries.Inc()
	mux.Pause(c, delay)
	return ""
}

// stop ends a call that cannot go on. The client of a tool gets the result of a tool that
// failed, so that a model can read why.
func (s *Server) stop(c *call, why string) {
	s.metrics.StoppedCalls.Inc()
	if string(c.method()) != rpc.MethodCallTool {
		s.fail(c, why)
		return
	}
	result := rpc.AppendString([]byte(`{"content":[{"type":"text","text":`), why)
	s.answer(c, scanned(rpc.AppendResult(nil, c.id(), append(result, `}],"isError":true}`...))))
}

package tolegacy

import (
	"fmt"
	"slices"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// converse has a call answered, however many rounds that takes. Each round is one request
// to the modern server: nothing is ever sent twice that was not asked for.
func (s *Server) converse(c *call, exchange Exchange) {
	defer c.cancel()
	for {
		message := s.follow(c, exchange)
		if message == nil {
			return
		}
		next, more := s.consider(c, message)
		if !more {
			return
		}
		var err error
		next.From = c.sender
		exchange, err = s.options.Modern.Call(c.ctx, next)
		if err != nil {
			s.fail(c, err.Error())
			return
		}
	}
}

// consider looks at an answer of the modern server's. It is the client's, or leads to
// another request.
func (s *Server) consider(c *call, text []byte) (next session.Message, more bool) {
	e, err := rpc.ScanLenient(text)
	answer := session.Message{Bytes: text, Envelope: e, Owned: true}
	switch {
	case err != nil || e.Kind != rpc.Response:
		s.bad(c, "cannot be read")
	case e.Error.Present():
		s.answer(c, scanned(translateError(answer, c.id)))
	case !e.Result.IsObject(text):
		s.bad(c, "is no object")
	default:
		return s.considerResult(c, answer)
	}
	return session.Message{}, false
}

// bad ends a call whose answer nobody understands.
func (s *Server) bad(c *call, why string) {
	s.metrics.BadResults.Inc()
	s.fail(c, "the server's answer "+why)
}

// withInput are the methods whose results may ask for input (I-01).
var withInput = []string{"tools/call", "prompts/get", "resources/read"}

func (s *Server) considerResult(c *call, answer session.Message) (next session.Message, more bool) {
	switch kind := resultType(answer.Bytes, answer.Envelope.Result); {
	case kind == typeComplete:
		s.answer(c, c.complete(answer))
	case kind != typeInputRequired:
		s.bad(c, fmt.Sprintf("is of a type that was not agreed on: %q", rpc.Clip(kind)))
	case !slices.Contains(withInput, c.method):
		s.bad(c, "asks for input, which it must not for "+rpc.Clip(c.method))
	default:
		return s.another(c, answer)
	}
	return session.Message{}, false
}

// another does what an answer asks for that is not the last, and returns the request that
// comes after it.
func (s *Server) another(c *call, answer session.Message) (next session.Message, more bool) {
	text, result := answer.Bytes, answer.Envelope.Result
	inputs, state := rpc.Lookup(text, result, "inputRequests"), rpc.Lookup(text, result, "requestState")
	var responses []byte
	switch {
	case inputs.IsObject(text):
		var stopped string
		responses, stopped = s.ask(c, text, inputs)
		if stopped != "" {
			s.stop(c, stopped)
			return session.Message{}, false
		}
	case state.Present():
		if !s.pause(c) {
			return session.Message{}, false
		}
	default:
		s.bad(c, "asks for input and does not say for which")
		return session.Message{}, false
	}
	if c.ctx.Err() != nil {
		return session.Message{}, false
	}
	return c.retry(responses, state.Of(text)), true
}

// retry is the same request once more, with answers for the server and the state that it
// wants back byte for byte (I-05). The code that sends it gives it an id.
func (c *call) retry(responses, state []byte) session.Message {
	text, params := c.request.Bytes, c.request.Envelope.Params
	var edits rpc.Edits
	if responses != nil {
		edits.Insert(text, params, surrounded(`"inputResponses":`, responses, ""))
	}
	if len(state) > 0 {
		edits.Insert(text, params, surrounded(`"requestState":`, state, ""))
	}
	return scanned(edits.Edited(text))
}

// pause waits before a call is repeated for a server that wants it later.
func (s *Server) pause(c *call) bool {
	if c.retries >= s.options.Limits.Retries {
		s.stop(c, fmt.Sprintf("the server asked for the call to be repeated more than %d times", s.options.Limits.Retries))
		return false
	}
	delay := s.options.Limits.RetryDelay << c.retries
	c.retries++
	s.metrics.Retries.Inc()
	return mux.Pause(c.ctx, delay)
}

// stop ends a call that cannot go on. A tool's caller is told as of a tool that failed,
// so that a model can read why.
func (s *Server) stop(c *call, why string) {
	s.metrics.StoppedCalls.Inc()
	if c.method != "tools/call" {
		s.fail(c, why)
		return
	}
	result := rpc.AppendString([]byte(`{"content":[{"type":"text","text":`), why)
	s.answer(c, scanned(rpc.AppendResult(nil, c.id, append(result, `}],"isError":true}`...))))
}

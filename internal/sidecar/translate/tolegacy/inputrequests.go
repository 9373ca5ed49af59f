package tolegacy

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// cancelledElicitation is the answer of a user who gives none. The other input requests have
// no answer like it.
var cancelledElicitation = []byte(`{"action":"cancel"}`)

// inputRequest is a request to the client for one input that the server wants.
type inputRequest struct {
	round  *round
	id     string // that the client gets
	name   []byte // of the input, as the server spelled it
	method string
	params []byte
	answer []byte // the client's result
}

// round is the input that the server asks for in one answer.
type round struct {
	requests []*inputRequest
	answers  chan inputAnswer // with room for all
}

// inputAnswer is the client's answer to an input request.
type inputAnswer struct {
	request *inputRequest
	sender  *caller.Caller
	result  []byte // nil if it is an error
	text    string // of the error
}

// ask makes all input requests of a round and collects the answers, as the server wants them.
// If the call cannot go on it says why.
func (s *Server) ask(c *call, text []byte, inputs rpc.Span) (responses []byte, stopped string) {
	if c.rounds >= s.options.Limits.Rounds {
		return nil, fmt.Sprintf("the server asked for input more than %d times", s.options.Limits.Rounds)
	}
	c.rounds++
	s.metrics.Rounds.Inc()
	r, stopped := s.readRound(c, text, inputs)
	if stopped != "" {
		return nil, stopped
	}
	s.openRound(r)
	for _, q := range r.requests {
		s.deliver(q.text(), c)
	}
	stopped = s.collect(c, r)
	s.withdraw(c, r)
	if stopped != "" {
		return nil, stopped
	}
	return r.responses(), ""
}

// openRound numbers the requests of a round, so that their answers are taken.
func (s *Server) openRound(r *round) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range r.requests {
		s.lastInput++
		q.id = `"slipway-e` + strconv.FormatUint(s.lastInput, 10) + `"`
		s.inputs[q.id] = q
	}
}

// readRound reads the server's input requests. The client gets none that it has not declared
// the capability for, which the server knows (I-03).
func (s *Server) readRound(c *call, text []byte, inputs rpc.Span) (r *round, stopped string) {
	r = &round{}
	names := map[string]struct{}{}
	for m := range rpc.Members(text, inputs) {
		if len(r.requests) == s.options.Limits.Questions {
			return nil, fmt.Sprintf("the server asked for more than %d inputs at a time", s.options.Limits.Questions)
		}
		if names[string(m.Name)] = struct{}{}; len(names) == len(r.requests) {
			return nil, "the server asked for one input twice" // I-02
		}
		q := &inputRequest{round: r, name: m.Key.Of(text)}
		q.method = string(rpc.Text(text, rpc.Lookup(text, m.Value, "method")))
		q.params = rpc.Lookup(text, m.Value, "params").Of(text)
		if !q.isFor(c.can) {
			return nil, "the server asked for input that the client cannot give: " + rpc.Clip(q.method)
		}
		if c.revision == front.Revision20251125 && q.isURL() {
			q.identify()
		}
		r.requests = append(r.requests, q)
	}
	r.answers = make(chan inputAnswer, len(r.requests))
	return r, ""
}

func (q *inputRequest) isURL() bool {
	mode := rpc.Lookup(q.params, rpc.Whole(q.params), "mode")
	return q.method == rpc.MethodElicit && string(rpc.Text(q.params, mode)) == "url"
}

// isFor says whether a client with these abilities can be asked.
func (q *inputRequest) isFor(can abilities) bool {
	switch q.method {
	case rpc.MethodElicit:
		return q.isURL() && can.url || !q.isURL() && can.form
	case rpc.MethodSample:
		return can.sampling
	case rpc.MethodListRoots:
		return can.roots
	}
	return false
}

// identify gives an elicitation the id that revision 2025-11-25 wants and the modern one does
// not have.
func (q *inputRequest) identify() {
	if rpc.Lookup(q.params, rpc.Whole(q.params), "elicitationId").Present() {
		return
	}
	var edits rpc.Edits
	edits.Insert(q.params, rpc.Whole(q.params), []byte(`"elicitationId":"`+rand.Text()+`"`))
	q.params = edits.Edited(q.params)
}

// text is the request as the client gets it.
func (q *inputRequest) text() []byte {
	text := `{"jsonrpc":"2.0","id":` + q.id + `,"method":"` + q.method + `"`
	if rpc.Whole(q.params).IsObject(q.params) {
		text += `,"params":` + string(q.params)
	}
	return []byte(text + "}")
}

// takeAnswer takes the client's answer to an input request. An answer to any other request is
// dropped.
func (s *Server) takeAnswer(message session.Message) {
	key := string(rpc.IDKey(message.Envelope.ID.Of(message.Bytes)))
	s.mu.Lock()
	q := s.inputs[key]
	delete(s.inputs, key)
	s.mu.Unlock()
	if q == nil {
		s.metrics.DroppedMessages.Inc()
		return
	}
	answer := inputAnswer{request: q, sender: message.From.Clone()}
	switch result := message.Envelope.Result; {
	case result.IsObject(message.Bytes):
		answer.result = bytes.Clone(result.Of(message.Bytes))
	case result.Present():
		answer.text = "its answer is not an object"
	default:
		answer.text = string(rpc.Text(message.Bytes, rpc.Lookup(message.Bytes, message.Envelope.Error, "message")))
	}
	q.round.answers <- answer
}

// collect waits for the answers of a round. If one is missing without which the call cannot go
// on it says so.
func (s *Server) collect(c *call, r *round) (stopped string) {
	timer := time.NewTimer(s.options.Limits.RoundTimeout)
	defer timer.Stop()
	for range r.requests {
		select {
		case answer := <-r.answers:
			c.sender = answer.sender
			q := answer.request
			if q.answer = answer.result; !q.isAnswered() {
				const most = 500
				return "the client did not answer " + q.method + ": " + rpc.ClipTo(answer.text, most)
			}
		case <-timer.C:
			s.metrics.QuestionTimeouts.Inc()
			for _, q := range r.requests {
				if !q.isAnswered() {
					return "the client did not answer " + q.method + " within " + s.options.Limits.RoundTimeout.String()
				}
			}
			return ""
		case <-c.gone:
			return ""
		}
	}
	return ""
}

// isAnswered says whether there is an answer for the server. An elicitation always has one.
func (q *inputRequest) isAnswered() bool {
	if q.answer == nil && q.method == rpc.MethodElicit {
		q.answer = cancelledElicitation
	}
	return q.answer != nil
}

// withdraw tells the client which requests of a round it need not answer any more.
func (s *Server) withdraw(c *call, r *round) {
	for _, q := range r.requests {
		s.mu.Lock()
		_, open := s.inputs[q.id]
		delete(s.inputs, q.id)
		s.mu.Unlock()
		if open {
			s.deliver(rpc.AppendCancelled(nil, []byte(q.id), ""), c)
		}
	}
}

// responses are the answers as the server wants them: one for every input (I-05).
func (r *round) responses() []byte {
	members := make([]string, len(r.requests))
	for i, q := range r.requests {
		members[i] = string(q.name) + ":" + string(q.answer)
	}
	return []byte(rpc.Object(members...))
}

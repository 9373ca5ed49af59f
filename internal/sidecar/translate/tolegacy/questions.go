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

// The requests that a server may make of a client.
const (
	methodElicit = "elicitation/create"
	methodSample = "sampling/createMessage"
	methodRoots  = "roots/list"
)

// refusedElicitation is the answer of somebody who is not there to give one. The other
// questions have none like it.
var refusedElicitation = []byte(`{"action":"cancel"}`)

// question is a request to the client, by which one input of a round is had.
type question struct {
	round  *round
	number int    // in the round
	id     string // as the client is told
	name   []byte // of the input, as the server spelled it
	method string
	params []byte
	answer []byte // the client's result
}

// round is what the server asks in one answer.
type round struct {
	questions []*question
	answers   chan answered // with room for all
}

// answered is what the client said to a question.
type answered struct {
	number int
	sender *caller.Caller // of the answer
	result []byte         // nil if it is an error
	text   string         // of the error
}

// ask puts all questions of a round to the client and collects the answers, as the server
// wants them. If it cannot go on it says why.
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
	for _, q := range r.questions {
		s.deliver(q.request(), c)
	}
	stopped = s.collect(c, r)
	s.withdraw(c, r)
	if stopped != "" {
		return nil, stopped
	}
	return r.responses(), ""
}

// openRound numbers the questions of a round, so that their answers are taken.
func (s *Server) openRound(r *round) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range r.questions {
		s.asked++
		q.id = `"slipway-e` + strconv.FormatUint(s.asked, 10) + `"`
		s.questions[q.id] = q
	}
}

// readRound reads what the server asks for. The client is asked nothing that it has not
// said it can do, which the server knows (I-03).
func (s *Server) readRound(c *call, text []byte, inputs rpc.Span) (r *round, stopped string) {
	r = &round{}
	for m := range rpc.Members(text, inputs) {
		if len(r.questions) == s.options.Limits.Questions {
			return nil, fmt.Sprintf("the server asked for more than %d inputs at a time", s.options.Limits.Questions)
		}
		if !r.isNew(m.Name) {
			return nil, "the server asked for one input twice" // I-02
		}
		q := &question{round: r, number: len(r.questions), name: m.Key.Of(text)}
		q.method = string(rpc.Text(text, rpc.Lookup(text, m.Value, "method")))
		q.params = rpc.Lookup(text, m.Value, "params").Of(text)
		if !q.isFor(c.can) {
			return nil, "the server asked for input that the client cannot give: " + rpc.Clip(q.method)
		}
		if c.revision == front.Revision20251125 && q.isURL() {
			q.identify()
		}
		r.questions = append(r.questions, q)
	}
	r.answers = make(chan answered, len(r.questions))
	return r, ""
}

// isNew says whether an input of this name was not asked for yet.
func (r *round) isNew(name []byte) bool {
	for _, q := range r.questions {
		if bytes.Equal(rpc.Text(q.name, rpc.Whole(q.name)), name) {
			return false
		}
	}
	return true
}

func (q *question) isURL() bool {
	mode := rpc.Lookup(q.params, rpc.Whole(q.params), "mode")
	return q.method == methodElicit && string(rpc.Text(q.params, mode)) == "url"
}

// isFor says whether a client with these abilities can be asked.
func (q *question) isFor(can abilities) bool {
	switch q.method {
	case methodElicit:
		if q.isURL() {
			return can.url
		}
		return can.form
	case methodSample:
		return can.sampling
	case methodRoots:
		return can.roots
	}
	return false
}

// identify gives an elicitation the id that revision 2025-11-25 wants and the modern one
// does not have.
func (q *question) identify() {
	if rpc.Lookup(q.params, rpc.Whole(q.params), "elicitationId").Present() {
		return
	}
	var edits rpc.Edits
	edits.Insert(q.params, rpc.Whole(q.params), []byte(`"elicitationId":"`+rand.Text()+`"`))
	q.params = edits.Edited(q.params)
}

// request is the question as the client gets it.
func (q *question) request() []byte {
	text := append([]byte(`{"jsonrpc":"2.0","id":`), q.id...)
	text = append(append(append(text, `,"method":"`...), q.method...), '"')
	if rpc.Whole(q.params).IsObject(q.params) {
		text = append(append(text, `,"params":`...), q.params...)
	}
	return append(text, '}')
}

// takeAnswer takes the client's answer to a question. One to a question that is over, or
// that nobody asked, is dropped.
func (s *Server) takeAnswer(message session.Message) {
	key := string(rpc.IDKey(message.Envelope.ID.Of(message.Bytes)))
	s.mu.Lock()
	q := s.questions[key]
	delete(s.questions, key)
	s.mu.Unlock()
	if q == nil {
		s.metrics.DroppedMessages.Inc()
		return
	}
	said := answered{number: q.number, sender: message.From.Clone()}
	switch result := message.Envelope.Result; {
	case result.IsObject(message.Bytes):
		said.result = bytes.Clone(result.Of(message.Bytes))
	case result.Present():
		said.text = "its answer is no object"
	default:
		said.text = string(rpc.Text(message.Bytes, rpc.Lookup(message.Bytes, message.Envelope.Error, "message")))
	}
	q.round.answers <- said // which has room: there is one for each question
}

// collect waits for the answers of a round. If one is missing without which the call
// cannot go on it says so.
func (s *Server) collect(c *call, r *round) (stopped string) {
	timer := time.NewTimer(s.options.Limits.RoundTimeout)
	defer timer.Stop()
	for range r.questions {
		select {
		case said := <-r.answers:
			c.sender = said.sender
			q := r.questions[said.number]
			if q.answer = said.result; q.answer == nil && !q.excused() {
				const most = 500
				return "the client did not answer " + q.method + ": " + rpc.ClipTo(said.text, most)
			}
		case <-timer.C:
			s.metrics.QuestionTimeouts.Inc()
			return r.excuse("within " + s.options.Limits.RoundTimeout.String())
		case <-c.ctx.Done():
			return ""
		}
	}
	return ""
}

// excuse does without the answers that have not come, if that can be done.
func (r *round) excuse(when string) (stopped string) {
	for _, q := range r.questions {
		if q.answer == nil && !q.excused() {
			return "the client did not answer " + q.method + " " + when
		}
	}
	return ""
}

// excused puts another answer in the place of one that the client does not give, if there
// is one.
func (q *question) excused() bool {
	if q.method != methodElicit {
		return false
	}
	q.answer = refusedElicitation
	return true
}

// withdraw tells the client which questions need no answer any more.
func (s *Server) withdraw(c *call, r *round) {
	for _, q := range s.closeRound(r) {
		s.deliver(rpc.AppendCancelled(nil, []byte(q.id), ""), c)
	}
}

// closeRound takes no more answers to the questions of a round, and returns those without one.
func (s *Server) closeRound(r *round) (open []*question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range r.questions {
		if s.questions[q.id] == q {
			delete(s.questions, q.id)
			open = append(open, q)
		}
	}
	return open
}

// responses are the answers as the server wants them: one for every input (I-05).
func (r *round) responses() []byte {
	text := []byte{'{'}
	for i, q := range r.questions {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(append(text, q.name...), ':'), q.answer...)
	}
	return append(text, '}')
}

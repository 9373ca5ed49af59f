package tomodern

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// park is where a call waits for its client to come back.
type park struct {
	id    string
	call  *call // nil if the process is to be called anew
	bound []byte
	round uint32 // that the client was asked in last
	open  bool   // and has not come back from
	timer *time.Timer
}

// mostParks bounds what is kept for clients that never come back. Calls that are parked
// are fewer, since each has a process.
const mostParks = 10_000

// ask gives a call's client the process's questions in place of an answer.
func (s *Server) ask(c *call) {
	bound := s.boundOf(c)
	s.mu.Lock()
	c.gathering = nil
	if c.done || c.cancelled || c.to == nil || len(c.questions) == 0 {
		s.mu.Unlock()
		return
	}
	if c.park == nil {
		c.park = s.newParkLocked(c, bound)
	}
	state := s.openLocked(c.park)
	asked := make([]*question, len(c.questions))
	copy(asked, c.questions)
	to := s.takeLocked(c)
	s.mu.Unlock()
	to.Answer(inputRequired(to.ID(), asked, state), 0, "")
}

// boundOf is what the state of a call is bound to. It takes a while to work out, and then
// the arguments are not needed any more, which may be large.
func (s *Server) boundOf(c *call) []byte {
	s.mu.Lock()
	bound, arguments := c.bound, c.arguments
	s.mu.Unlock()
	if bound != nil {
		return bound
	}
	bound = boundTo(c.group, c.method, []byte(c.name), arguments)
	s.mu.Lock()
	defer s.mu.Unlock()
	c.bound, c.arguments = bound, nil
	return bound
}

func (s *Server) newParkLocked(c *call, bound []byte) *park {
	p := &park{id: newParkID(), call: c, bound: bound}
	s.parks[p.id] = p
	return p
}

// openLocked begins a round, and returns what the client is to come back with.
func (s *Server) openLocked(p *park) string {
	s.metrics.Parks.Inc()
	p.round++
	p.open = true
	round := p.round
	ttl := s.options.Limits.ParkTTL
	p.timer = time.AfterFunc(ttl, func() { s.expire(p, round) })
	return s.sealer.seal(ticket{p.id, round, time.Now().Add(ttl)}, p.bound)
}

func (s *Server) forgetParkLocked(p *park) {
	delete(s.parks, p.id)
	p.open = false
	if c := p.call; c != nil && c.held != nil {
		s.held.Change(-len(c.held.Bytes))
		c.held = nil
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	s.wakeLocked()
}

// holdLocked keeps the answer to a call that is parked. The process has not waited for
// what it asked for.
func (s *Server) holdLocked(c *call, m session.Message) {
	if !s.held.Take(len(m.Bytes)) {
		s.forgetParkLocked(c.park)
		return
	}
	held := mux.Keep(m)
	c.held = &held
}

// giveWay forgets the largest of the answers that are held.
func (s *Server) giveWay() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var largest *park
	size := 0
	for _, p := range s.parks {
		if c := p.call; c != nil && c.held != nil && len(c.held.Bytes) > size {
			largest, size = p, len(c.held.Bytes)
		}
	}
	if largest != nil {
		s.forgetParkLocked(largest)
	}
}

// expire ends a call whose client does not come back (I-07).
func (s *Server) expire(p *park, round uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parks[p.id] != p || !p.open || p.round != round {
		return
	}
	s.forgetParkLocked(p)
	s.metrics.ExpiredParks.Inc()
	if p.call != nil {
		s.cancelLocked(p.call)
	}
}

func inputRequired(id []byte, asked []*question, state string) []byte {
	requests := make([]string, len(asked))
	for i, q := range asked {
		requests[i] = `"` + q.key + `":{"method":"` + q.method + `","params":` + string(q.params) + `}`
	}
	result := `{"resultType":"input_required","inputRequests":` + rpc.Object(requests...) + `,"requestState":"` + state + `"}`
	return rpc.AppendResult(nil, id, []byte(result))
}

var errResponses = errors.New("inputResponses are not what was asked for")

// retry takes a call up again with what its client was asked for. Whatever is wrong with
// it, nothing is called: the tool may have acted.
func (s *Server) retry(ctx context.Context, g *group, r *request) error {
	bound := boundTo(g, r.method, r.name(), r.arguments.Of(r.Bytes))
	t, ok := s.sealer.open(rpc.Text(r.Bytes, r.state), bound)
	s.mu.Lock()
	p := s.parks[t.park]
	if !ok || p == nil || !p.open || p.round != t.round {
		s.mu.Unlock()
		s.refuseState(r.to)
		return nil
	}
	if p.call == nil {
		s.forgetParkLocked(p)
		s.mu.Unlock()
		s.metrics.Retries.Inc()
		return s.callAnew(ctx, g, r, p)
	}
	answers, err := p.call.answersLocked(r)
	if err != nil {
		s.mu.Unlock() // the round is still open for better ones
		refuse(r.to, rpc.CodeInvalidParams, err.Error())
		return nil
	}
	s.metrics.Retries.Inc()
	s.resume(ctx, r, p, answers)
	return nil
}

func (s *Server) refuseState(to sessionless.Recipient) {
	s.metrics.InvalidStates.Inc()
	refuse(to, rpc.CodeInvalidParams, "requestState invalid or expired; call again")
}

// callAnew is the retry that a server with sessions expects after -32042. One that finds
// no process may be repeated.
func (s *Server) callAnew(ctx context.Context, g *group, r *request, p *park) error {
	err := s.call(ctx, g, r)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			s.parks[p.id], p.open = p, true
			p.timer.Reset(s.options.Limits.ParkTTL)
		}
	}
	return err
}

// answersLocked are those of a retry to a call's questions, which they are no more. Keys
// that are not known are ignored, and questions without an answer stay (I-06).
func (c *call) answersLocked(r *request) (answers [][]byte, err error) {
	given := map[string]rpc.Span{}
	for i := 0; i < len(c.questions); i += findable {
		some := c.questions[i:min(i+findable, len(c.questions))]
		keys := make([]string, len(some))
		for j, q := range some {
			keys[j] = q.key
		}
		found, err := rpc.Find(r.Bytes, r.responses, keys...)
		if err != nil {
			return nil, err
		}
		for j, at := range found {
			given[keys[j]] = at
		}
	}
	if r.responses.Present() && !r.responses.IsObject(r.Bytes) {
		return nil, errResponses
	}
	var left []*question
	for _, q := range c.questions {
		switch at := given[q.key]; {
		case !at.Present():
			left = append(left, q)
		case !q.valid(r.Bytes, at):
			return nil, errResponses
		default:
			answers = append(answers, rpc.AppendResult(nil, q.id, at.Of(r.Bytes)))
		}
	}
	c.questions = left
	return answers, nil
}

// findable is how many members can be looked for at a time.
const findable = 8

// resume gives a parked call to the client that came back, and the answers to the
// process. It is called with the server's mutex, which it gives back.
func (s *Server) resume(ctx context.Context, r *request, p *park, answers [][]byte) {
	c := p.call
	w := c.worker
	p.open = false // before anything is done
	p.timer.Stop()
	if c.held != nil {
		held := *c.held
		s.forgetParkLocked(p)
		s.mu.Unlock()
		s.answer(c, r.to, held)
		return
	}
	c.to, c.level = r.to, r.level
	s.calls[c.to] = c
	delete(w.logged, c)
	if c.level != noLevel {
		w.logged[c] = struct{}{}
	}
	s.gatherLocked(c)
	s.mu.Unlock()
	w.tellLevel(ctx, c)
	for i, answer := range answers {
		err := w.child.Send(context.WithoutCancel(ctx), session.Message{Bytes: answer, From: r.From})
		switch {
		case err == nil:
		case errors.Is(err, fault.ErrBusy), mux.IsUnread(err): // the process has StuckTimeout to read it
			w.sendLater(answers[i:])
			return
		default:
			go w.AwaitReason(err) // which answers the client
			return
		}
	}
}

// answerURLs has a client visit what a process wants visited before it is called again
// (-32042). It says whether the process's error could be read.
func (s *Server) answerURLs(c *call, to sessionless.Recipient, text []byte, data rpc.Span) bool {
	var read struct {
		Elicitations []json.RawMessage `json:"elicitations"`
	}
	if !data.IsObject(text) || json.Unmarshal(data.Of(text), &read) != nil || len(read.Elicitations) == 0 || len(read.Elicitations) > mostQuestions {
		return false
	}
	if !c.group.capabilities.url {
		const code = rpc.CodeMissingCapability
		to.Answer(rpc.AppendError(nil, to.ID(), code, "this takes a client with elicitation by URL", []byte(`{"requiredCapabilities":{"elicitation":{"url":{}}}}`)), code, rpc.ErrorTypeOf(code))
		return true
	}
	var asked []*question
	for i, params := range read.Elicitations {
		q, ok := visit(i, params)
		if !ok {
			return false
		}
		asked = append(asked, q)
	}
	bound := s.boundOf(c)
	s.mu.Lock()
	if s.closed || len(s.parks) >= mostParks {
		s.mu.Unlock()
		return false
	}
	state := s.openLocked(s.newParkLocked(nil, bound))
	s.mu.Unlock()
	to.Answer(inputRequired(to.ID(), asked, state), 0, "")
	return true
}

// visit is one of these as a question.
func visit(i int, params json.RawMessage) (*question, bool) {
	all := rpc.Whole(params)
	found, err := rpc.Find(params, all, "mode")
	if err != nil || string(rpc.Text(params, found[0])) != "url" {
		return nil, false
	}
	var edits rpc.Edits
	if _, err := edits.Take(params, all, "elicitationId"); err != nil {
		return nil, false
	}
	return &question{key: "u" + strconv.Itoa(i+1), method: methodElicit, params: rpc.Edited(params, edits...)}, true
}

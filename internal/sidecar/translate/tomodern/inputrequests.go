package tomodern

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// inputRequest is a request of a process that its call's client answers.
type inputRequest struct {
	id     []byte // as the process spelled it
	key    string // that the client knows it by
	method string
	params []byte // for the client
}

const (
	// gatherTime is how long the adapter waits for further input requests, so that the client
	// gets all of them at once.
	gatherTime = 30 * time.Millisecond
	// mostInputs is how many input requests a call can have open.
	mostInputs = 64
	// inputBytes is how long they can be in all: the adapter keeps them until the client has
	// come back.
	inputBytes = 1 << 20
)

// receiveRequest takes a request of the process. It belongs to the one call that may ask for
// input. The adapter refuses it if there is none.
func (p *process) receiveRequest(m session.Message) {
	q := &inputRequest{id: bytes.Clone(m.Envelope.ID.Of(m.Bytes)), method: string(m.Envelope.Method)}
	s := p.server
	code, reason := p.group.capabilities.allow(m)
	var err error
	if q.params, err = forClient(m); err != nil && code == 0 {
		code, reason = rpc.CodeInvalidParams, err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := p.asking
	switch {
	case q.method == "ping":
		p.PostLocked(rpc.AppendResult(nil, q.id, []byte("{}")))
		return
	case code != 0:
	case c == nil || c.first == 0: // the process has no such call, or does not have it yet
		code, reason = rpc.CodeInternal, "there is no call to ask the client in"
		if q.method == rpc.MethodListRoots {
			code = rpc.CodeMethodNotFound
		}
	case c.cancelled:
		p.PostLocked(q.unanswered())
		return
	case len(c.inputs) >= mostInputs:
		code, reason = rpc.CodeInternal, "too many requests are open in this call"
	case c.inputBytesLocked()+q.size() > inputBytes:
		code, reason = rpc.CodeInternal, "the requests that are open in this call are too long"
	}
	if code != 0 {
		s.metrics.RefusedRequests.Inc()
		p.PostLocked(rpc.AppendError(nil, q.id, code, reason, nil))
		return
	}
	c.lastInput++
	q.key = "r" + strconv.Itoa(c.lastInput)
	c.inputs = append(c.inputs, q)
	s.gatherLocked(c)
}

func (q *inputRequest) size() int { return len(q.id) + len(q.params) }

func (c *call) inputBytesLocked() (size int) {
	for _, q := range c.inputs {
		size += q.size()
	}
	return size
}

// gatherLocked asks a call's client for input in a moment, if a client waits.
func (s *Server) gatherLocked(c *call) {
	if c.gathering == nil && c.to != nil && len(c.inputs) > 0 {
		c.gathering = time.AfterFunc(gatherTime, func() { s.ask(c) })
	}
}

// forClient are the params of a process's request without those that only clients with sessions
// can use.
func forClient(m session.Message) ([]byte, error) {
	if !m.Envelope.Params.Present() {
		return []byte("{}"), nil // clients expect some
	}
	params := m.Envelope.Params.Of(m.Bytes)
	var edits rpc.Edits
	_, err := edits.Take(params, rpc.Whole(params), "elicitationId", "task")
	meta, metaErr := rpc.Find(params, rpc.Whole(params), "_meta")
	_, insideErr := edits.Take(params, meta[0], "progressToken", metaRelatedTask)
	if err := cmp.Or(err, metaErr, insideErr); err != nil {
		return nil, err
	}
	return edits.Edited(params), nil
}

// receiveCancelled drops an input request that the process does not need any more.
func (p *process) receiveCancelled(m session.Message) {
	id := m.Envelope.RequestID.Of(m.Bytes)
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	if c := p.asking; c != nil {
		c.inputs = slices.DeleteFunc(c.inputs, func(q *inputRequest) bool { return rpc.SameID(q.id, id) })
	}
}

// unanswered is the answer for the process if the client gives none.
func (q *inputRequest) unanswered() []byte {
	switch q.method {
	case rpc.MethodElicit:
		return rpc.AppendResult(nil, q.id, []byte(`{"action":"cancel"}`))
	case rpc.MethodSample:
		return rpc.AppendError(nil, q.id, rpc.CodeUserRejected, "the client did not answer", nil)
	default:
		return rpc.AppendError(nil, q.id, rpc.CodeInternal, "the client did not answer", nil)
	}
}

// isAnswer says whether a client's answer has the form that it must have.
func (q *inputRequest) isAnswer(text []byte, answer rpc.Span) bool {
	found, err := rpc.Find(text, answer, "action", "role", "roots")
	switch action := string(rpc.Text(text, found[0])); {
	case err != nil || !answer.IsObject(text):
		return false
	case q.method == rpc.MethodElicit:
		return action == "accept" || action == "decline" || action == "cancel"
	case q.method == rpc.MethodSample:
		return rpc.Text(text, found[1]) != nil
	default:
		return found[2].Present() && text[found[2].Start] == '['
	}
}

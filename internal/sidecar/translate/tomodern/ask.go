package tomodern

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// question is a request of a process's that a client is asked for.
type question struct {
	id     []byte // as the process spelled it
	key    string // that the client knows it by
	method string
	params []byte // for the client
}

const (
	// gatherTime is how long others may follow a question to be asked together with it.
	gatherTime = 30 * time.Millisecond
	// mostQuestions is how many a call can have open.
	mostQuestions = 64
	// questionBytes is how long they can be in all: they are kept for as long as the
	// client has not come back.
	questionBytes = 1 << 20
)

// metaRelatedTask names the task that a message of a server with sessions is about.
const metaRelatedTask = "io.modelcontextprotocol/related-task"

// receiveRequest takes a request of the process's. It belongs to the one call that may
// ask, if there is one; others cannot be put to anybody.
func (w *worker) receiveRequest(m session.Message) {
	id := bytes.Clone(m.Envelope.ID.Of(m.Bytes))
	method := string(m.Envelope.Method)
	s := w.server
	if method == "ping" {
		s.mu.Lock()
		w.sendLocked(rpc.AppendResult(nil, id, []byte("{}")))
		s.mu.Unlock()
		return
	}
	code, reason := w.group.capabilities.allow(m)
	q := &question{id: id, method: method}
	var err error
	if q.params, err = forClient(m); err != nil && code == 0 {
		code, reason = rpc.CodeInvalidParams, err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := w.askingLocked()
	switch {
	case code != 0:
	case c == nil && method == methodRoots:
		code, reason = rpc.CodeMethodNotFound, "there is no call to ask for roots in"
	case c == nil, c.done:
		code, reason = rpc.CodeInternal, "there is no call to ask the client in"
	case c.cancelled:
		w.sendLocked(q.givenUp())
		return
	case len(c.questions) >= mostQuestions:
		code, reason = rpc.CodeInternal, "too many requests are open in this call"
	case c.questionBytesLocked()+q.size() > questionBytes:
		code, reason = rpc.CodeInternal, "the requests that are open in this call are too long"
	}
	if code != 0 {
		s.metrics.RefusedRequests.Inc()
		w.sendLocked(rpc.AppendError(nil, id, code, reason, nil))
		return
	}
	c.lastKey++
	q.key = "r" + strconv.Itoa(c.lastKey)
	c.questions = append(c.questions, q)
	s.gatherLocked(c)
}

func (q *question) size() int { return len(q.id) + len(q.params) }

func (c *call) questionBytesLocked() (size int) {
	for _, q := range c.questions {
		size += q.size()
	}
	return size
}

// askingLocked is the call that a request of the process's belongs to. One that the
// process has not been sent yet cannot have led to any.
func (w *worker) askingLocked() *call {
	if c := w.lease; c != nil && c.number != 0 {
		return c
	}
	return nil
}

// gatherLocked asks a call's client in a moment, if one waits.
func (s *Server) gatherLocked(c *call) {
	if c.gathering == nil && c.to != nil && len(c.questions) > 0 {
		c.gathering = time.AfterFunc(gatherTime, func() { s.ask(c) })
	}
}

// forClient are the params of a process's request without what only those with sessions
// have a use for.
func forClient(m session.Message) ([]byte, error) {
	if !m.Envelope.Params.Present() {
		return []byte("{}"), nil // clients expect some
	}
	params := m.Envelope.Params.Of(m.Bytes)
	var edits rpc.Edits
	if _, err := edits.Take(params, rpc.Whole(params), "elicitationId", "task"); err != nil {
		return nil, err
	}
	meta, err := rpc.Find(params, rpc.Whole(params), "_meta")
	if err != nil {
		return nil, err
	}
	if _, err := edits.Take(params, meta[0], "progressToken", metaRelatedTask); err != nil {
		return nil, err
	}
	return edits.Edited(params), nil
}

// withdraw is for a question that the process has no use for any more.
func (w *worker) withdraw(m session.Message) {
	s := w.server
	id := m.Envelope.RequestID.Of(m.Bytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := w.lease; c != nil {
		c.questions = slices.DeleteFunc(c.questions, func(q *question) bool { return rpc.SameID(q.id, id) })
	}
}

// givenUp is what the process is told when nobody answers.
func (q *question) givenUp() []byte {
	switch q.method {
	case methodElicit:
		return rpc.AppendResult(nil, q.id, []byte(`{"action":"cancel"}`))
	case methodSample:
		return rpc.AppendError(nil, q.id, rpc.CodeUserRejected, "the client did not answer", nil)
	default:
		return rpc.AppendError(nil, q.id, rpc.CodeInternal, "the client did not answer", nil)
	}
}

// valid says whether a client's answer has the form that it must have.
func (q *question) valid(text []byte, answer rpc.Span) bool {
	if !answer.IsObject(text) {
		return false
	}
	found, err := rpc.Find(text, answer, "action", "role", "roots")
	switch {
	case err != nil:
		return false
	case q.method == methodElicit:
		return slices.Contains([]string{"accept", "decline", "cancel"}, string(rpc.Text(text, found[0])))
	case q.method == methodSample:
		return rpc.Text(text, found[1]) != nil
	default:
		return found[2].Present() && text[found[2].Start] == '['
	}
}

package sessionless

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Servers may keep in memory what a later request continues, although they should not
// (M-23): a task, or the state of a call that has asked for input. A continuation is the
// token that names it: a taskId, or a requestState.

// continuation is the digest of a token, which can be long.
type continuation [sha256.Size]byte

// maxContinuations is how many of them the adapter remembers.
const maxContinuations = 4096

// tasksExtension is what a request must declare to be answered by a task (U-15).
const tasksExtension = "io.modelcontextprotocol/tasks"

// isAboutTask says whether a request is about a task that was started before.
func isAboutTask(request session.Message) bool {
	return bytes.HasPrefix(request.Envelope.Method, []byte("tasks/"))
}

// continued is the token of what a request continues; nil for one that starts something.
func continued(request session.Message) []byte {
	e := &request.Envelope
	member := "requestState"
	if isAboutTask(request) {
		member = "taskId"
	} else if !bytes.Contains(e.Params.Of(request.Bytes), []byte(`"requestState"`)) {
		return nil
	}
	found, err := rpc.Find(request.Bytes, e.Params, member)
	if err != nil || !found[0].Present() {
		return nil
	}
	return decoded(request.Bytes, found[0])
}

// watched are the tasks of which a subscription wants to hear. It returns an error if parsers may
// disagree on them.
func watched(request session.Message) (tasks [][]byte, err error) {
	if string(request.Envelope.Method) != methodListen {
		return nil, nil
	}
	filter, err := rpc.Find(request.Bytes, request.Envelope.Params, "notifications")
	if err != nil {
		return nil, err
	}
	found, err := rpc.Find(request.Bytes, filter[0], "taskIds")
	if err != nil {
		return nil, err
	}
	for task := range rpc.Members(request.Bytes, found[0]) {
		tasks = append(tasks, decoded(request.Bytes, task.Value))
	}
	return tasks, nil
}

// decoded is a value as its reader understands it: a client may spell a string differently.
func decoded(message []byte, at rpc.Span) []byte {
	if text := rpc.Text(message, at); text != nil {
		return text
	}
	return at.Of(message)
}

// startedBy are the continuations that an answer gives the client: a state, and a task.
func startedBy(answer session.Message) (started []continuation) {
	result := answer.Envelope.Result.Of(answer.Bytes)
	if !bytes.Contains(result, []byte(`"requestState"`)) && !bytes.Contains(result, []byte(`"taskId"`)) {
		return nil // as nearly all answers
	}
	found, err := rpc.Find(answer.Bytes, answer.Envelope.Result, "requestState", "taskId", "task")
	if err != nil {
		return nil
	}
	if inner, err := rpc.Find(answer.Bytes, found[2], "taskId"); err == nil {
		found[2] = inner[0]
	}
	for _, at := range found {
		if at.Present() {
			started = append(started, sha256.Sum256(decoded(answer.Bytes, at)))
		}
	}
	return started
}

// isTask says whether an answer is a task, which the process works on after it.
func isTask(answer session.Message) bool {
	found, err := rpc.Find(answer.Bytes, answer.Envelope.Result, "resultType")
	return err == nil && string(rpc.Text(answer.Bytes, found[0])) == "task"
}

// recordStartedLocked records what a process has started with its answer, which may be a
// task.
func (p *process) recordStartedLocked(c *Call, answer session.Message, task bool) {
	if c.own {
		return
	}
	p.tasked = p.tasked || task
	if task && p.place == nil && p.idle != nil {
		p.idle.Stop()
		p.idle = nil // the process works on, and does not say until when
	}
	if started := startedBy(answer); len(started) > 0 {
		p.continued = true
		p.continuations.record(started, origin{process: p, owner: c.principal, owned: c.owned && !c.aboutTask}) // a task has an owner already
	}
}

// origin is where a continuation comes from.
type origin struct {
	process *process // nil when it has ended
	owner   caller.Principal
	owned   bool // there is an owner
}

// continuations knows the origins of what clients can continue. Code that holds its lock
// takes no other one.
type continuations struct {
	mu      sync.Mutex
	origins map[continuation]origin
	order   map[caller.Principal][]continuation // of each owner, oldest first
}

// record remembers what a process has started. The first owner stays the owner. When there are too many,
// it forgets the oldest of the owner that has most, so that no owner can make it forget those of others.
func (s *continuations) record(started []continuation, by origin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.origins == nil {
		s.origins, s.order = map[continuation]origin{}, map[caller.Principal][]continuation{}
	}
	for _, one := range started {
		entry := by
		switch known, ok := s.origins[one]; {
		case ok && known.owned:
			entry.owner, entry.owned = known.owner, true
		case ok:
			s.removeLocked(one, known.owner) // it has an owner now
			fallthrough
		default:
			if len(s.origins) == maxContinuations {
				s.dropOldestLocked()
			}
			s.order[entry.owner] = append(s.order[entry.owner], one)
		}
		s.origins[one] = entry
	}
}

func (s *continuations) dropOldestLocked() {
	var most caller.Principal
	for owner, all := range s.order {
		if len(all) > len(s.order[most]) {
			most = owner
		}
	}
	s.removeLocked(s.order[most][0], most)
}

func (s *continuations) removeLocked(one continuation, owner caller.Principal) {
	delete(s.origins, one)
	at := slices.Index(s.order[owner], one)
	if s.order[owner] = slices.Delete(s.order[owner], at, at+1); len(s.order[owner]) == 0 {
		delete(s.order, owner)
	}
}

// isForeign reports whether a request, with the token of what it continues, names something that another
// principal has started. Servers cannot tell their clients apart, so for other principals it must not exist.
func (s *continuations) isForeign(request session.Message, token []byte) bool {
	tokens, err := watched(request)
	if err != nil && request.From.Identity() != nil {
		return true
	}
	if token != nil {
		tokens = append(tokens, token)
	}
	return slices.ContainsFunc(tokens, func(token []byte) bool {
		by := s.find(token)
		return by.owned && by.owner != request.From.Principal
	})
}

// forget is for a process that has ended. What it has started keeps its owner.
func (s *continuations) forget(ended *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one, by := range s.origins {
		if by.process == ended {
			by.process = nil
			s.origins[one] = by
		}
	}
}

// find is the origin of what a request continues with a token.
func (s *continuations) find(token []byte) origin {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.origins[sha256.Sum256(token)]
}

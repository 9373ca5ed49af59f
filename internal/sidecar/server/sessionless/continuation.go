package sessionless

import (
	"bytes"
	"crypto/sha256"
	"maps"
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
	if task && p.idle != nil {
		p.idle.Stop()
		p.idle = nil // the process works on, and does not say until when
	}
	if p.translator != nil {
		return // a Translator knows the owners and processes of its calls
	}
	started := startedBy(answer)
	if len(started) == 0 {
		return
	}
	if !c.internal && !c.aboutTask { // else the task has an owner
		p.owners.record(c.principal, started)
	}
	if p.affinity != nil {
		p.affinity.record(p, started)
	}
}

// affinity knows which process of the pool a continuation belongs to. All others belong to
// the first process. Code that holds its lock takes no other one.
type affinity struct {
	mu        sync.Mutex
	processes map[continuation]*process
}

// record remembers what a process has started.
func (a *affinity) record(p *process, started []continuation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.processes == nil {
		a.processes = map[continuation]*process{}
	}
	for _, one := range started {
		for old := range a.processes {
			if len(a.processes) < maxContinuations {
				break
			}
			delete(a.processes, old)
		}
		a.processes[one] = p
	}
}

// forget is for a process that has ended.
func (a *affinity) forget(ended *process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.processes, func(_ continuation, p *process) bool { return p == ended })
}

// find is the process that a token belongs to: the first, if no other one is known.
func (a *affinity) find(token []byte, first *process) *process {
	a.mu.Lock()
	p := a.processes[sha256.Sum256(token)]
	a.mu.Unlock()
	if p != nil {
		if _, alive := p.load(); alive {
			return p
		}
	}
	return first
}

// owners knows which principal a continuation belongs to. Servers cannot tell their clients
// apart, so for all other principals it does not exist.
type owners struct {
	mu         sync.Mutex
	principals map[continuation]caller.Principal
	order      []continuation // oldest first
}

func (o *owners) record(principal caller.Principal, started []continuation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.principals == nil {
		o.principals = map[continuation]caller.Principal{}
	}
	for _, one := range started {
		if _, known := o.principals[one]; known {
			continue // it belongs to the first principal that had it
		}
		if len(o.order) == maxContinuations {
			delete(o.principals, o.order[0])
			o.order = o.order[1:]
		}
		o.principals[one] = principal
		o.order = append(o.order, one)
	}
}

// isForeign says whether another principal has started what a request continues.
func (o *owners) isForeign(principal caller.Principal, token []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	owner, known := o.principals[sha256.Sum256(token)]
	return known && owner != principal
}

package stateless

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"strings"
	"sync"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Servers may keep in memory what a later request goes on with, although they should not
// (M-23): a task, or the state of a call that has asked for input.

// mark stands for what a request goes on with, which can be long.
type mark [sha256.Size]byte

// mostBegun is how much of what processes have begun is remembered.
const mostBegun = 4096

// tasksExtension is what a request must declare to be answered by a task (U-15).
const tasksExtension = "io.modelcontextprotocol/tasks"

// goesOnWith is what a request goes on with, as JSON; nil for one that begins anew.
func goesOnWith(request session.Message) []byte {
	e := &request.Envelope
	member := "requestState"
	if strings.HasPrefix(string(e.Method), "tasks/") {
		member = "taskId"
	} else if !bytes.Contains(e.Params.Of(request.Bytes), []byte(`"requestState"`)) {
		return nil
	}
	found, err := rpc.Find(request.Bytes, e.Params, member)
	if err != nil || !found[0].Present() {
		return nil
	}
	return found[0].Of(request.Bytes)
}

// begunIn is what an answer lets a client go on with: a state, and a task.
func begunIn(answer session.Message) (marks []mark) {
	found, err := rpc.Find(answer.Bytes, answer.Envelope.Result, "requestState", "taskId", "task")
	if err != nil {
		return nil
	}
	if inner, err := rpc.Find(answer.Bytes, found[2], "taskId"); err == nil {
		found[2] = inner[0]
	}
	for _, at := range found {
		if at.Present() {
			marks = append(marks, sha256.Sum256(at.Of(answer.Bytes)))
		}
	}
	return marks
}

// isTask says whether an answer is a task, which the process works on after it.
func isTask(answer session.Message) bool {
	found, err := rpc.Find(answer.Bytes, answer.Envelope.Result, "resultType")
	return err == nil && string(rpc.Text(answer.Bytes, found[0])) == "task"
}

// begun is what other processes than the first have begun. Nobody who has its lock wants
// another.
type begun struct {
	mu sync.Mutex
	by map[mark]*run
}

// note remembers what a process has begun.
func (b *begun) note(by *run, marks []mark) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by == nil {
		b.by = map[mark]*run{}
	}
	for _, m := range marks {
		for old := range b.by {
			if len(b.by) < mostBegun {
				break
			}
			delete(b.by, old)
		}
		b.by[m] = by
	}
}

// forget is for a process that has ended.
func (b *begun) forget(over *run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.by, func(_ mark, by *run) bool { return by == over })
}

// who is the process that a request goes on at: the first, if nobody else is known.
func (b *begun) who(with []byte, first *run) *run {
	b.mu.Lock()
	by := b.by[sha256.Sum256(with)]
	b.mu.Unlock()
	if by != nil {
		if _, alive := by.load(); alive {
			return by
		}
	}
	return first
}

package stateless

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
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

// goesOnWith is what a request goes on with; nil for one that begins anew.
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
	return meant(request.Bytes, found[0])
}

// meant is a value as its reader takes it: a client may spell a string differently.
func meant(message []byte, at rpc.Span) []byte {
	if text := rpc.Text(message, at); text != nil {
		return text
	}
	return at.Of(message)
}

// begunIn is what an answer lets a client go on with: a state, and a task.
func begunIn(answer session.Message) (marks []mark) {
	result := answer.Envelope.Result.Of(answer.Bytes)
	if !bytes.Contains(result, []byte(`"requestState"`)) && !bytes.Contains(result, []byte(`"taskId"`)) {
		return nil // as nearly all
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
			marks = append(marks, sha256.Sum256(meant(answer.Bytes, at)))
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

// owners knows to whom what was begun belongs. Servers cannot tell their clients apart, so
// for all other principals it does not exist.
type owners struct {
	mu    sync.Mutex
	of    map[mark]caller.Principal
	order []mark // oldest first
}

func (o *owners) note(principal caller.Principal, marks []mark) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = map[mark]caller.Principal{}
	}
	for _, m := range marks {
		if _, known := o.of[m]; known {
			continue // who was first has it
		}
		if len(o.order) == mostBegun {
			delete(o.of, o.order[0])
			o.order = o.order[1:]
		}
		o.of[m] = principal
		o.order = append(o.order, m)
	}
}

// isForeign says whether what a request goes on with was begun by another principal.
func (o *owners) isForeign(principal caller.Principal, with []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	owner, known := o.of[sha256.Sum256(with)]
	return known && owner != principal
}

// refuseForeign answers as servers do to what they do not know.
func refuseForeign(request session.Message) *refusal {
	text := "requestState invalid or expired; call again"
	if strings.HasPrefix(string(request.Envelope.Method), "tasks/") {
		text = "there is no such task"
	}
	return &refusal{status: http.StatusOK, code: rpc.CodeInvalidParams, text: text}
}

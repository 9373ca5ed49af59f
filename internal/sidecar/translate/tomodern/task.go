package tomodern

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

// task is a call of a tool that its server only runs as a task. Clients without sessions
// are not told: it is begun, looked after and fetched for them.
type task struct {
	id        string // when it is known
	fetching  bool   // its result is asked for
	cancelled uint64 // number of the request that cancels it
	poll      *time.Timer
}

const (
	taskTTL     = time.Hour // for the process to keep the result
	firstPoll   = 500 * time.Millisecond
	fastestPoll = 100 * time.Millisecond
	slowestPoll = 5 * time.Second
	taskID      = 1 << 10 // bytes of the longest name of a task
)

// withTask asks for a task.
func withTask(text []byte) []byte {
	envelope, err := rpc.Scan(text)
	if err != nil {
		return text // it was scanned before
	}
	var edits rpc.Edits
	edits.Insert(text, envelope.Params, []byte(`"task":{"ttl":`+strconv.FormatInt(taskTTL.Milliseconds(), 10)+`}`))
	return edits.Edited(text)
}

// withoutTask is an answer that does not name the task that it came from.
func withoutTask(m session.Message) session.Message {
	meta, err := rpc.Find(m.Bytes, m.Envelope.Result, "_meta")
	if err != nil {
		return m // which is found out again
	}
	var edits rpc.Edits
	if _, err := edits.Take(m.Bytes, meta[0], metaRelatedTask); err != nil || edits.Len() == 0 {
		return m
	}
	text := edits.Edited(m.Bytes)
	envelope, err := rpc.ScanLenient(text)
	if err != nil {
		return m // it was scanned before
	}
	return session.Message{Bytes: text, Envelope: envelope, Owned: true}
}

// taskState is what a process says of a task.
type taskState struct {
	TaskID       string  `json:"taskId"`
	Status       string  `json:"status"`
	PollInterval float64 `json:"pollInterval"`
}

// taskAnswerLocked takes an answer that belongs to a task. It says whether it is the
// answer to the call.
func (w *worker) taskAnswerLocked(c *call, number uint64, m session.Message) bool {
	t := c.task
	if c.cancelled {
		return w.cancelledTaskLocked(c, number, m)
	}
	if t.fetching || m.Envelope.Error.Present() {
		return true
	}
	state, begun := readTask(m, t.id == "")
	switch {
	case t.id == "" && !begun:
		return true // a server without tasks runs it at once
	case t.id == "":
		t.id = state.TaskID
	}
	if state.Status == "working" || state.Status == "submitted" {
		interval := firstPoll
		if state.PollInterval > 0 {
			interval = time.Duration(min(state.PollInterval, slowestPoll.Seconds()*1000)) * time.Millisecond
		}
		t.poll = time.AfterFunc(max(interval, fastestPoll), func() { w.pollTask(c) })
		return false
	}
	// It is over, or needs input, which it asks for while its result is waited for.
	t.fetching = true
	w.requestLocked(c, "tasks/result")
	return false
}

// readTask reads the state of a task from the answer that begins it, or a later one.
func readTask(m session.Message, begins bool) (state taskState, ok bool) {
	at := m.Envelope.Result
	if begins {
		found, err := rpc.Find(m.Bytes, at, "task")
		if err != nil || !found[0].Present() {
			return state, false
		}
		at = found[0]
	}
	if json.Unmarshal(at.Of(m.Bytes), &state) != nil {
		return state, false
	}
	return state, state.TaskID != "" && len(state.TaskID) <= taskID
}

// requestLocked sends a request about a call's task.
func (w *worker) requestLocked(c *call, method string) {
	c.number = w.NumberLocked()
	w.AddLocked(c.number, c)
	if !w.floodedLocked() {
		w.PostRequestLocked(c.number, method, `"taskId":`+string(rpc.AppendString(nil, c.task.id)))
	}
}

func (w *worker) pollTask(c *call) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if !c.done && !c.cancelled {
		w.requestLocked(c, "tasks/get")
	}
}

func (w *worker) cancelTaskLocked(c *call) {
	if c.task.poll != nil {
		c.task.poll.Stop()
	}
	w.DropLocked(c.number) // its answer is late now
	w.requestLocked(c, "tasks/cancel")
	c.task.cancelled = c.number
}

// cancelledTaskLocked is for what a process says of a task that was cancelled, perhaps
// before its name was known.
func (w *worker) cancelledTaskLocked(c *call, number uint64, m session.Message) bool {
	if c.task.cancelled == number {
		return true
	}
	state, begun := readTask(m, true)
	if !begun {
		return true
	}
	c.task.id = state.TaskID
	w.cancelTaskLocked(c)
	return false
}

// needsTask says whether a call must be one of a task.
func (w *worker) needsTask(ctx context.Context, c *call) bool {
	if c.method != methodCall || !w.hello.tasks {
		return false
	}
	must, current := w.group.taskTools.Find(c.name, toolindex.Forever)
	if !current {
		must = w.group.taskTools.Refresh(ctx, c.name, toolindex.Forever, toolindex.List[bool]{
			Context: w.server.ctx, Fetch: w.fetchTools, Keep: mustBeTask, Sessions: true,
		})
	}
	return must
}

// mustBeTask says whether a tool can only be called as a task. Others are not kept.
func mustBeTask(tool toolindex.Tool) (must, keep bool) {
	var execution struct {
		TaskSupport string `json:"taskSupport"`
	}
	must = json.Unmarshal(tool.Execution, &execution) == nil && execution.TaskSupport == "required"
	return must, must
}

func (w *worker) fetchTools(ctx context.Context, cursor string) ([]byte, error) {
	w.server.mu.Lock()
	answered := w.askLocked(methodTools, strings.TrimSuffix(cursor, ","), toolindex.Timeout)
	w.server.mu.Unlock()
	answer, err := w.Await(ctx, answered)
	if err != nil && w.Dead() != nil {
		return nil, toolindex.ErrAborted // another process can say
	}
	return answer.Bytes, err
}

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

// task is a call of a tool that its server only runs as a task. Clients without sessions do
// not know: the adapter begins the task, polls it and fetches its result for them.
type task struct {
	id        string // when it is known
	fetching  bool   // the adapter waits for its result
	cancelled uint64 // number of the request that cancels it
	poll      *time.Timer
}

// metaRelatedTask names the task that a message of a server with sessions is about.
const metaRelatedTask = "io.modelcontextprotocol/related-task"

const (
	taskTTL     = time.Hour // for the process to keep the result
	firstPoll   = 500 * time.Millisecond
	fastestPoll = 100 * time.Millisecond
	slowestPoll = 5 * time.Second
	taskIDBytes = 1 << 10 // of the longest id of a task
)

// memberTask asks for a task.
var memberTask = []byte(`"task":{"ttl":` + strconv.FormatInt(taskTTL.Milliseconds(), 10) + `}`)

// withoutTask is an answer that does not name the task that it came from.
func withoutTask(m session.Message) session.Message {
	var edits rpc.Edits
	meta, _ := rpc.Find(m.Bytes, m.Envelope.Result, "_meta") // resultFor finds the error, too
	if _, err := edits.Take(m.Bytes, meta[0], metaRelatedTask); err != nil || edits.Len() == 0 {
		return m
	}
	m.Envelope.ID, m.Envelope.Result = edits.Moved(m.Envelope.ID), edits.Moved(m.Envelope.Result)
	m.Bytes, m.Owned = edits.Edited(m.Bytes), true
	return m
}

// taskState is the state of a task as a process reports it.
type taskState struct {
	TaskID       string  `json:"taskId"`
	Status       string  `json:"status"`
	PollInterval float64 `json:"pollInterval"`
}

// taskAnswerLocked takes an answer that belongs to a task. It says whether it is the
// answer to the call.
func (p *process) taskAnswerLocked(c *call, number uint64, m session.Message) bool {
	t := c.task
	if c.cancelled {
		return p.cancelledTaskLocked(c, number, m)
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
		t.poll = p.server.after(max(interval, fastestPoll), func() {
			if !c.done && !c.cancelled {
				p.requestLocked(c, "tasks/get")
			}
		})
		return false
	}
	// It has ended, or needs input, which the process asks for before it sends the result.
	t.fetching = true
	p.requestLocked(c, "tasks/result")
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
	return state, state.TaskID != "" && len(state.TaskID) <= taskIDBytes
}

// requestLocked sends a request about a call's task.
func (p *process) requestLocked(c *call, method string) {
	c.number = p.NumberLocked()
	p.AddLocked(c.number, c)
	p.PostRequestLocked(c.number, method, `"taskId":`+string(rpc.AppendString(nil, c.task.id)))
}

// cancelTaskLocked cancels a task. The answer to the last request about it is late now.
func (p *process) cancelTaskLocked(c *call) {
	stop(c.task.poll)
	p.DropLocked(c.number)
	p.requestLocked(c, "tasks/cancel")
	c.task.cancelled = c.number
}

// cancelledTaskLocked takes an answer about a task that was cancelled, perhaps before its id
// was known.
func (p *process) cancelledTaskLocked(c *call, number uint64, m session.Message) bool {
	state, begun := readTask(m, true)
	if c.task.cancelled == number || !begun {
		return true
	}
	c.task.id = state.TaskID
	p.cancelTaskLocked(c)
	return false
}

// needsTask says whether a tool must be called as a task.
func (p *process) needsTask(ctx context.Context, c *call) bool {
	if c.method != rpc.MethodCallTool || !p.offer.tasks {
		return false
	}
	must, current := p.group.taskTools.Find(c.name, toolindex.Forever)
	if !current {
		must = p.group.taskTools.Refresh(ctx, c.name, toolindex.Forever, toolindex.List[bool]{
			Context: p.server.ctx, Fetch: p.fetchTools, Keep: mustBeTask, Sessions: true,
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

func (p *process) fetchTools(ctx context.Context, cursor string) ([]byte, error) {
	p.server.mu.Lock()
	answered := p.AskLocked(toolindex.Method, strings.TrimSuffix(cursor, ","), toolindex.Timeout)
	p.server.mu.Unlock()
	answer, err := p.Await(ctx, answered)
	if err != nil && p.Dead() != nil {
		return nil, toolindex.ErrAborted // another process can answer
	}
	return answer.Bytes, err
}

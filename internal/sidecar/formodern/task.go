package formodern

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
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

	toolsTimeout = 10 * time.Second
	toolsPause   = time.Minute // before a list that cannot be had is asked for again
	toolPages    = 100
)

// withTask asks for a task.
func withTask(text []byte) []byte {
	envelope, err := rpc.Scan(text)
	if err != nil {
		return text // it was scanned before
	}
	var edits rpc.Edits
	edits.Insert(text, envelope.Params, []byte(`"task":{"ttl":`+strconv.FormatInt(taskTTL.Milliseconds(), 10)+`}`))
	return rpc.Edited(text, edits...)
}

// withoutTask is an answer that does not name the task that it came from.
func withoutTask(m session.Message) session.Message {
	meta, err := rpc.Find(m.Bytes, m.Envelope.Result, "_meta")
	if err != nil {
		return m // which is found out again
	}
	var edits rpc.Edits
	if _, err := edits.Take(m.Bytes, meta[0], metaRelatedTask); err != nil || len(edits) == 0 {
		return m
	}
	text := rpc.Edited(m.Bytes, edits...)
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
	w.floodedLocked()
	w.PostRequestLocked(c.number, method, `"taskId":`+string(rpc.AppendString(nil, c.task.id)))
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

// taskTools are the tools that can only be called as tasks.
type taskTools struct {
	required map[string]bool
	known    bool
	failed   time.Time     // when they could not be had, if so
	asking   chan struct{} // closed when they are known that were asked for; nil if they were not
}

func (g *group) outdateTools() {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	g.tools.known = false
}

// needsTask says whether a call must be one of a task.
func (w *worker) needsTask(ctx context.Context, c *call) bool {
	if c.method != methodCall || !w.hello.tasks {
		return false
	}
	s, t := w.server, &w.group.tools
	s.mu.Lock()
	asking := t.asking
	if !t.known && asking == nil && time.Since(t.failed) >= toolsPause {
		asking = make(chan struct{})
		t.asking, t.known = asking, true // it is what changes from now on that they may not have
		go w.findTaskTools(asking)
	}
	s.mu.Unlock()
	if asking != nil {
		select {
		case <-asking:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.required[c.name]
}

func (w *worker) findTaskTools(done chan struct{}) {
	ctx, cancel := context.WithTimeout(w.server.ctx, toolsTimeout)
	defer cancel()
	required, err := w.fetchTaskTools(ctx)
	s, t := w.server, &w.group.tools
	s.mu.Lock()
	defer s.mu.Unlock()
	t.asking = nil
	switch {
	case err == nil:
		t.required = required
	case w.DeadLocked() != nil:
		t.known = false
	default:
		t.known, t.failed = false, time.Now()
	}
	close(done)
}

var errManyTools = errors.New("the list of tools does not end")

func (w *worker) fetchTaskTools(ctx context.Context) (map[string]bool, error) {
	required := map[string]bool{}
	params := ""
	for range toolPages {
		w.server.mu.Lock()
		answered := w.askLocked(methodTools, params, toolsTimeout)
		w.server.mu.Unlock()
		answer, err := w.Await(ctx, answered)
		if err != nil {
			return nil, err
		}
		var page struct {
			Result struct {
				Tools []struct {
					Name      string `json:"name"`
					Execution struct {
						TaskSupport string `json:"taskSupport"`
					} `json:"execution"`
				} `json:"tools"`
				NextCursor *string `json:"nextCursor"`
			} `json:"result"`
		}
		if err := json.Unmarshal(answer.Bytes, &page); err != nil {
			return nil, fmt.Errorf("read list of tools: %w", err)
		}
		for _, tool := range page.Result.Tools {
			if tool.Execution.TaskSupport == "required" {
				required[tool.Name] = true
			}
		}
		if page.Result.NextCursor == nil {
			return required, nil
		}
		params = `"cursor":` + string(rpc.AppendString(nil, *page.Result.NextCursor))
	}
	return nil, errManyTools
}

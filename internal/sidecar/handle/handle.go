// Package handle binds the handles that a server gives to its callers: states of requests, ids of events, and
// tasks. A server that speaks HTTP does not learn who calls, so it cannot tell whether a handle is the caller's.
// The adapter can: a handle of another principal does not exist.
//
// States and ids of events carry a proof of whose they are, so that every replica can verify it. The adapter cannot do that with
// the id of a task, which stands in too many messages. It remembers who began a task.
package handle

import (
	"bytes"
	"errors"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// Binder binds handles to principals. Goroutines may call its methods at the same time.
type Binder struct {
	ring  func() adapterapi.Keyring
	tasks tasks
}

// New returns a Binder. The ring has the server's keys, which all replicas share.
func New(ring func() adapterapi.Keyring) *Binder { return &Binder{ring: ring} }

// The errors say that a handle is not the caller's. Servers answer with such texts to one that they do not know.
var (
	ErrState = errors.New("requestState invalid or expired; call again")
	ErrTask  = errors.New("there is no such task")
)

// MethodListTasks asks for all tasks. Other methods with the same beginning name one task.
const (
	MethodListTasks = tasksPrefix + "list"
	tasksPrefix     = "tasks/"
)

const (
	memberState = "requestState"
	memberTask  = "taskId"
	memberTasks = "tasks"
)

// Claim checks the handles in a message that rpc.Scan has accepted, and removes from them what Bind has added.
// It overwrites the message, but moves nothing in it. The error is ErrState or ErrTask.
func (b *Binder) Claim(by caller.Principal, message []byte, e *rpc.Envelope) error {
	switch {
	case e.Kind == rpc.Response, string(e.Method) == MethodListTasks:
		return nil
	case bytes.HasPrefix(e.Method, []byte(tasksPrefix)):
		if !b.ownsTask(by, message, e.Params) {
			return ErrTask
		}
	case string(e.Method) == subscription.MethodListen:
		return b.claimSubscription(by, message, e)
	}
	return b.claimState(by, message, e)
}

// claimState verifies a state. A scan accepts its name in one spelling only.
func (b *Binder) claimState(by caller.Principal, message []byte, e *rpc.Envelope) error {
	if !bytes.Contains(e.Params.Of(message), []byte(`"`+memberState+`"`)) { // nearly always
		return nil
	}
	found, err := rpc.Find(message, e.Params, memberState)
	if err != nil {
		return ErrState
	}
	state := found[0]
	if isAbsent(message, state) {
		return nil
	}
	if !b.opens(by, message, state) {
		return ErrState
	}
	unseal(message, state)
	return nil
}

// claimSubscription checks the tasks that a caller wants to hear of.
func (b *Binder) claimSubscription(by caller.Principal, message []byte, e *rpc.Envelope) error {
	params, err := rpc.Find(message, e.Params, "notifications")
	if err != nil {
		return ErrTask
	}
	filter, err := rpc.Find(message, params[0], "taskIds")
	switch ids := filter[0]; {
	case err != nil:
		return ErrTask
	case isAbsent(message, ids):
		return nil
	case message[ids.Start] != '[':
		return ErrTask
	default:
		for id := range rpc.Members(message, ids) {
			if !b.isTask(by, message, id.Value) {
				return ErrTask
			}
		}
	}
	return nil
}

func isAbsent(message []byte, value rpc.Span) bool {
	return !value.Present() || string(value.Of(message)) == "null"
}

// ownsTask reports whether an object has the id of a task of the principal.
func (b *Binder) ownsTask(principal caller.Principal, message []byte, object rpc.Span) bool {
	found, err := rpc.Find(message, object, memberTask)
	return err == nil && b.isTask(principal, message, found[0])
}

func (b *Binder) isTask(principal caller.Principal, message []byte, id rpc.Span) bool {
	text := taskID(message, id)
	return text != nil && b.tasks.has(principal, text)
}

// taskID returns the id of a task, or nil if the value is none. An id that is too long is not decoded.
func taskID(message []byte, id rpc.Span) []byte {
	if id.End-id.Start > longestTask*len(`\u0000`) {
		return nil
	}
	return rpc.Text(message, id)
}

// Mentions reports whether a text may have a handle that Bind looks for. It is much faster than a scan. A
// server that spells the name of a handle with escapes gives the client one that Claim refuses.
func Mentions(text []byte) bool {
	return bytes.Contains(text, []byte(`"`+memberState+`"`)) ||
		bytes.Contains(text, []byte(`"`+memberTask+`"`)) || bytes.Contains(text, []byte(`"`+memberTasks+`"`))
}

// Bind returns an answer with its handles bound to the principal that gets it, and without tasks of others. The
// answer is a response that rpc.ScanLenient has accepted. Bind may overwrite it, and the envelope does not fit
// what Bind returns. An answer in which parsers may find different handles becomes an error.
func (b *Binder) Bind(to caller.Principal, answer []byte, e *rpc.Envelope) []byte {
	if !e.Result.IsObject(answer) || !Mentions(e.Result.Of(answer)) {
		return answer
	}
	found, err := rpc.Find(answer, e.Result, memberState, "resultType", memberTask, "task", memberTasks)
	if err != nil {
		return unbound(answer, e, err.Error())
	}
	state, kind, id, task, list := found[0], found[1], found[2], found[3], found[4]
	b.recordTask(to, answer, kind, id, task)
	var edits rpc.Edits
	if list.Present() && answer[list.Start] == '[' {
		edits.Filter(answer, list, func(entry rpc.Member) bool { return b.shows(to, answer, entry.Value) })
	}
	if state.Present() && answer[state.Start] == '"' {
		seal, ok := b.seal(to, answer, state)
		if !ok {
			return unbound(answer, e, "its requestState is too long")
		}
		edits.Replace(rpc.Span{Start: state.Start + 1, End: state.Start + 1}, seal)
	}
	if edits.Len() == 0 {
		return answer
	}
	return edits.EditedInPlace(answer)
}

// recordTask remembers the task that an answer begins: result.task in 2025-11-25, and a result of that type
// in 2026-07-28.
func (b *Binder) recordTask(to caller.Principal, answer []byte, kind, id, task rpc.Span) {
	if string(rpc.Text(answer, kind)) != "task" {
		inner, err := rpc.Find(answer, task, memberTask)
		if err != nil {
			return
		}
		id = inner[0]
	}
	if text := taskID(answer, id); text != nil {
		b.tasks.record(to, text)
	}
}

// shows reports whether the principal may see an entry of a list of tasks. One without an id is no task.
func (b *Binder) shows(to caller.Principal, answer []byte, entry rpc.Span) bool {
	found, err := rpc.Find(answer, entry, memberTask)
	return err == nil && (!found[0].Present() || b.isTask(to, answer, found[0]))
}

// unbound is the answer in the place of one whose handles cannot be bound.
func unbound(answer []byte, e *rpc.Envelope, why string) []byte {
	return rpc.AppendError(nil, e.ID.Of(answer), rpc.CodeInternal, "the server's answer cannot be bound to you: "+why, nil)
}

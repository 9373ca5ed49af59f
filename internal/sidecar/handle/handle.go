// Package handle binds the handles that a server gives to its callers: states of requests, ids of events, and
// tasks. A server that speaks HTTP does not learn who calls, so it cannot tell whether a handle is the caller's.
// The adapter can: a handle of another principal does not exist.
//
// States and ids of events carry a proof of whose they are, so that every replica can verify it. A state also names the
// pod that gave it, so that a process that keeps its part in memory gets the next request, too. The adapter cannot do
// that with the id of a task, which stands in too many messages. It remembers who began a task.
package handle

import (
	"bytes"
	"errors"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// Options configure a Binder.
type Options struct {
	// Keys are the server's, which all replicas share.
	Keys interface {
		Ring() adapterapi.Keyring
		States() *sessionid.States
	}
	// Owner is this pod, as states name it.
	Owner sessionid.Owner
	// Peers says that there may be other pods. Then states of callers that the adapter has not verified name their pod,
	// too.
	Peers bool
}

// Binder binds handles to callers. Goroutines may call its methods at the same time.
type Binder struct {
	Options
	tasks tasks
}

// New returns a Binder.
func New(options Options) *Binder { return &Binder{Options: options} }

// Binds reports whether there may be handles of the caller. Of a caller that the adapter has not verified, only
// states without a session are. A nil Binder binds nothing.
func (b *Binder) Binds(c *caller.Caller) bool {
	return b != nil && (b.Peers || c.Identity() != nil)
}

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
func (b *Binder) Claim(by *caller.Caller, message []byte, e *rpc.Envelope) error {
	switch {
	case e.Kind == rpc.Response, string(e.Method) == MethodListTasks:
		return nil
	case by.Identity() == nil:
	case bytes.HasPrefix(e.Method, []byte(tasksPrefix)):
		if !b.ownsTask(by.Principal, message, e.Params) {
			return ErrTask
		}
	case string(e.Method) == subscription.MethodListen:
		return b.claimSubscription(by.Principal, message, e)
	}
	return b.claimState(by, message, e)
}

// claimState verifies a state. One that no pod has sealed is the server's own. The server decides on it, if the adapter
// does not know who calls.
func (b *Binder) claimState(by *caller.Caller, message []byte, e *rpc.Envelope) error {
	state, err := stateIn(message, e)
	if err != nil {
		return ErrState
	}
	if isAbsent(message, state) {
		return nil
	}
	switch _, err := open(b.Keys.States(), by, message, state); {
	case err == nil:
		unseal(message, state)
	case by.Identity() != nil, errors.Is(err, sessionid.ErrOther):
		return ErrState
	}
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

// Bind returns an answer with its handles bound to the caller that gets it, and without tasks of others. The
// answer is a response that rpc.ScanLenient has accepted. Bind may overwrite it, and the envelope does not fit
// what Bind returns. An answer in which parsers may find different handles becomes an error, if the adapter has
// verified the caller.
func (b *Binder) Bind(to *caller.Caller, answer []byte, e *rpc.Envelope) []byte {
	if !e.Result.IsObject(answer) || !Mentions(e.Result.Of(answer)) {
		return answer
	}
	bound, err := b.bind(to, answer, e)
	switch {
	case err == nil:
		return bound
	case to.Identity() == nil:
		return answer
	}
	return unbound(answer, e, err.Error())
}

// bind is Bind. It leaves the answer as it is if it fails.
func (b *Binder) bind(to *caller.Caller, answer []byte, e *rpc.Envelope) ([]byte, error) {
	found, err := rpc.Find(answer, e.Result, memberState, "resultType", memberTask, "task", memberTasks)
	if err != nil {
		return nil, err
	}
	state, kind, id, task, list := found[0], found[1], found[2], found[3], found[4]
	var edits rpc.Edits
	if to.Identity() != nil {
		b.recordTask(to.Principal, answer, kind, id, task)
		if list.Present() && answer[list.Start] == '[' {
			edits.Filter(answer, list, func(entry rpc.Member) bool { return b.shows(to.Principal, answer, entry.Value) })
		}
	}
	if state.Present() && answer[state.Start] == '"' {
		seal, ok := b.seal(to, answer, state)
		if !ok {
			return nil, errTooLong
		}
		edits.Replace(rpc.Span{Start: state.Start + 1, End: state.Start + 1}, seal)
	}
	if edits.Len() == 0 {
		return answer, nil
	}
	return edits.EditedInPlace(answer), nil
}

var errTooLong = errors.New("its requestState is too long")

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

package shared

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// ErrSlow is why a session ends that does not read.
var ErrSlow = errors.New("the client does not read what it is sent, and too much waits for it")

// view is the process as one session sees it.
type view struct {
	run     *run
	session *session.Session

	// Guarded by the run's mutex.
	ready     bool             // initialize was answered
	closed    bool             // the session has ended
	calls     map[string]*call // by the keys of the client's ids
	cancelled []*call          // those of them that were, oldest first
	following map[*topic]struct{}
	waits     int // subscriptions that the process has not agreed to yet

	// What the process said to the session. Only the pump waits for the session:
	// whoever reads the process puts messages here and goes on to the next.
	mu      sync.Mutex
	inbox   []session.Message
	waiting int   // bytes of these, and of the one that is being delivered
	over    bool  // nothing is delivered any more
	reason  error // of the process's end; nothing follows
	wake    chan struct{}
}

func newView(r *run) *view {
	v := &view{run: r, calls: map[string]*call{}, following: map[*topic]struct{}{}, wake: make(chan struct{}, 1)}
	v.session = session.New(v, r.options.Session, r.options.SessionMetrics)
	return v
}

// Close lets go of the process: calls in flight are cancelled there, and resources
// that nobody else follows are unsubscribed from. The process lives on.
func (v *view) Close() {
	r := v.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if v.closed {
		return
	}
	v.closed = true
	delete(r.views, v)
	for _, c := range v.calls {
		r.DropLocked(c.number)
		if !c.cancelled {
			r.CancelLocked(c.number, "the session has ended")
		}
	}
	v.calls, v.cancelled = nil, nil
	for t := range v.following {
		r.leaveLocked(v, t)
	}
}

// push puts a message in the session's inbox. A session with too much in it is slow,
// and is to be ended by the caller once it holds no lock.
func (v *view) push(message session.Message) (slow bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return false
	}
	if v.waiting > v.run.options.BacklogBytes || !v.session.Account().Take(len(message.Bytes)) && !v.session.MakeRoom(len(message.Bytes)) {
		return true
	}
	v.inbox = append(v.inbox, message)
	v.waiting += len(message.Bytes)
	v.signal()
	return false
}

func (v *view) signal() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// deliver is push for a caller that holds no lock.
func (v *view) deliver(message session.Message) {
	if v.push(message) {
		v.endSlow()
	}
}

func (v *view) endSlow() {
	select {
	case <-v.session.Done(): // for whatever reason
		return
	default:
	}
	v.run.metrics.SlowSessions.Inc()
	v.session.End(fmt.Errorf("%w: more than %d bytes, or more than the adapter has room for", ErrSlow, v.run.options.BacklogBytes))
}

// lastWords is how long a session may take for what the process said before it
// ended.
const lastWords = 5 * time.Second

// finish ends the session once it has what the process still said to it.
func (v *view) finish(reason error) {
	v.mu.Lock()
	v.reason = reason
	v.signal()
	v.mu.Unlock()
	timer := time.AfterFunc(lastWords, func() { v.session.End(reason) })
	v.session.OnEnd(func() { timer.Stop() })
}

// pump hands the session what is in its inbox. It may wait for the client.
func (v *view) pump() {
	defer v.drop()
	for {
		select {
		case <-v.session.Done():
			return
		case <-v.wake:
		}
		for {
			message, ok, reason := v.next()
			if reason != nil {
				v.session.End(reason)
				return
			}
			if !ok {
				break
			}
			v.session.Deliver(message)
			v.delivered(message)
		}
	}
}

// drop forgets what is in the inbox.
func (v *view) drop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.inbox {
		v.session.Account().Change(-len(v.inbox[i].Bytes))
	}
	v.inbox, v.over = nil, true
}

func (v *view) next() (message session.Message, ok bool, reason error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.inbox) == 0 {
		v.inbox = nil
		return session.Message{}, false, v.reason
	}
	message = v.inbox[0]
	v.inbox[0] = session.Message{}
	v.inbox = v.inbox[1:]
	message.Charged, message.Room = true, v.session.Account() // the session takes it over
	return message, true, nil
}

func (v *view) delivered(message session.Message) {
	v.mu.Lock()
	v.waiting -= len(message.Bytes)
	v.mu.Unlock()
}

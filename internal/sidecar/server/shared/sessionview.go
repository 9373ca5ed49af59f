package shared

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// ErrSlow is why the adapter ends a session whose client does not read.
var ErrSlow = errors.New("the client does not read what it is sent, and too much waits for it")

// sessionView is the session.Server of one session: the child process as that session sees it.
type sessionView struct {
	instance *instance
	session  *session.Session
	ready    atomic.Bool // the adapter has answered initialize

	// The instance's mutex guards these.
	closed        bool             // the session has ended
	calls         map[string]*call // by the keys of the client's ids
	cancelled     []*call          // the cancelled ones of calls, oldest first
	subscriptions map[*topic]struct{}
	subscribing   int // subscriptions that the child process has not agreed to yet

	// The inbox decouples the session from the goroutine that reads the child process: that
	// goroutine pushes and never waits, and another one delivers to the session.
	mu         sync.Mutex
	changed    sync.Cond // inbox or done has changed
	inbox      []session.Message
	waiting    int   // bytes of the messages in the inbox, and of the one in delivery
	delivering int   // bytes of the message in delivery
	done       error // why the inbox takes no more messages; nil while it does
}

func newSessionView(i *instance) *sessionView {
	v := &sessionView{instance: i, calls: map[string]*call{}, subscriptions: map[*topic]struct{}{}}
	v.changed.L = &v.mu
	v.session = session.New(v, i.options.Session, i.options.SessionMetrics)
	return v
}

// Close detaches the session from the child process, which lives on. It cancels the session's
// calls in flight, and ends the subscriptions that no other session has.
func (v *sessionView) Close() {
	i := v.instance
	i.mu.Lock()
	defer i.mu.Unlock()
	if v.closed {
		return
	}
	v.closed = true
	delete(i.views, v)
	for _, c := range v.calls {
		i.DropLocked(c.number)
		if !c.cancelled {
			i.CancelLocked(c.number, "the session has ended")
		}
	}
	v.calls, v.cancelled = nil, nil
	for t := range v.subscriptions {
		t.remove(v)
		if len(t.subscribers) == 0 {
			i.changeLocked(unsubscribing, &call{topic: t}, nil)
		}
	}
	v.discard()
}

// push puts a message into the session's inbox. If the inbox has too much in it, push ends the
// session, in another goroutine because the caller may hold the instance's lock.
func (v *sessionView) push(message session.Message) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.done != nil {
		return
	}
	size := len(message.Bytes)
	if v.waiting > v.instance.options.BacklogBytes || !v.session.Account().Take(size) && !v.session.MakeRoom(size) {
		v.done = fmt.Errorf("%w: more than %d bytes, or more than the adapter has room for", ErrSlow, v.instance.options.BacklogBytes)
		v.instance.metrics.SlowSessions.Inc()
		go v.session.End(v.done)
		return
	}
	v.inbox = append(v.inbox, message)
	v.waiting += size
	v.changed.Signal()
}

// isDone reports whether the session has ended, or ends in a moment.
func (v *sessionView) isDone() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.done != nil
}

// lastDelivery is how long a session may take for the messages that the child process sent before
// it ended.
const lastDelivery = 5 * time.Second

// finish ends the session once it has all messages that the child process sent to it.
func (v *sessionView) finish(reason error) {
	v.mu.Lock()
	if v.done == nil {
		v.done = reason
	}
	v.changed.Signal()
	v.mu.Unlock()
	timer := time.AfterFunc(lastDelivery, func() { v.session.End(reason) })
	v.session.OnEnd(func() { timer.Stop() })
}

// deliver hands the session the messages of the inbox. It may wait for the client to read.
func (v *sessionView) deliver() {
	for {
		message, err := v.next()
		if err != nil {
			v.session.End(err)
			return
		}
		v.session.Deliver(message)
	}
}

// next waits for the next message of the inbox. It returns an error if there are no more.
func (v *sessionView) next() (session.Message, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiting -= v.delivering
	v.delivering = 0
	for len(v.inbox) == 0 {
		if v.done != nil {
			return session.Message{}, v.done
		}
		v.inbox = nil
		v.changed.Wait()
	}
	message := v.inbox[0]
	v.inbox[0] = session.Message{}
	v.inbox = v.inbox[1:]
	v.delivering = len(message.Bytes)
	message.Charged, message.Room = true, v.session.Account() // the session takes it over
	return message, nil
}

// discard empties the inbox of a session that has ended.
func (v *sessionView) discard() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, message := range v.inbox {
		v.session.Account().Change(-len(message.Bytes))
	}
	v.inbox, v.done = nil, session.ErrEnded
	v.changed.Signal()
}

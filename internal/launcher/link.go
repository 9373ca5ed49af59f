package launcher

import (
	"fmt"
	"sync"
	"time"
)

// lastWords is how long the adapter reads lifelines after the end of the control
// connection. A launcher that ends in order has reported there how each process ended.
const lastWords = 250 * time.Millisecond

// outcome is the answer to a request.
type outcome struct {
	process *Process
	memory  *Memory // of a request for usage
	err     error
}

// link is one launcher, from its hello to the end of its control connection.
type link struct {
	conn  *conn
	epoch string
	usage bool // the launcher tells what its container uses
	gone  chan struct{}

	mu        sync.Mutex
	closed    bool
	lastID    uint64
	requests  map[uint64]chan outcome
	lifelines map[*conn]struct{}
}

func newLink(c *conn, hello message) *link {
	return &link{
		conn:      c,
		epoch:     hello.Epoch,
		usage:     hello.TellsUsage,
		gone:      make(chan struct{}),
		requests:  map[uint64]chan outcome{},
		lifelines: map[*conn]struct{}{},
	}
}

// request registers a request. The channel has room for the outcome, so that answer
// does not block.
func (l *link) request() (uint64, <-chan outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastID++
	answer := make(chan outcome, 1)
	l.requests[l.lastID] = answer
	return l.lastID, answer
}

// forget drops a request. Later answers to it are ignored.
func (l *link) forget(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.requests, id)
}

// answer delivers an outcome. The caller may have given the request up, but the launcher
// must not answer a request that the adapter never made.
func (l *link) answer(id uint64, got outcome) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answerLocked(id, got)
}

func (l *link) answerLocked(id uint64, got outcome) error {
	if id == 0 || id > l.lastID {
		return fmt.Errorf("answer to request %d, which was never made", id)
	}
	if answer, ok := l.requests[id]; ok {
		delete(l.requests, id)
		answer <- got
	}
	return nil
}

// adopt delivers a process to the request that it answers, and keeps its lifeline until
// the caller calls forget.
func (l *link) adopt(id uint64, c *conn, process *Process) (forget func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.requests[id]; !ok || l.closed {
		return nil, fmt.Errorf("process for request %d, which is not outstanding", id)
	}
	l.lifelines[c] = struct{}{}
	if err := l.answerLocked(id, outcome{process: process}); err != nil {
		return nil, err
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.lifelines, c)
	}, nil
}

// close gives the launcher up, with all its processes.
func (l *link) close() {
	_ = l.conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	close(l.gone)
	for c := range l.lifelines {
		_ = c.SetReadDeadline(time.Now().Add(lastWords))
	}
}

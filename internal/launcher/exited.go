package launcher

import "sync"

// exitEvent is the end of one process. It comes once. Whoever only wants to act on it has
// a function called: a goroutine that waits costs every idle session more than that.
type exitEvent struct {
	done chan struct{}
	exit Exit // written before done is closed

	mu    sync.Mutex
	after []func() // called then
}

func newExitEvent() *exitEvent { return &exitEvent{done: make(chan struct{})} }

// come makes the end known. Only the first call does anything.
func (e *exitEvent) come(exit Exit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isOver() {
		return
	}
	e.exit = exit
	close(e.done)
	for _, f := range e.after {
		go f()
	}
	e.after = nil
}

// then has a function called in a goroutine of its own after the end, or now if that
// has come.
func (e *exitEvent) then(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isOver() {
		go f()
		return
	}
	e.after = append(e.after, f)
}

func (e *exitEvent) isOver() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

package launcher

import "sync"

// exitEvent is the end of one process. It comes once. Code that acts on it registers a
// function, because a waiting goroutine would cost every idle session more memory.
type exitEvent struct {
	done chan struct{}
	exit Exit // written before done is closed

	mu    sync.Mutex
	after []func() // called when it comes
}

func newExitEvent() *exitEvent { return &exitEvent{done: make(chan struct{})} }

// come reports the end. Only the first call has an effect.
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

// then calls a function in a goroutine of its own after the end, or at once if the
// process has ended.
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

package session

import "sync"

// Ending is the part of a Member that says whether it has ended. The type that embeds it shares
// its mutex with it.
type Ending struct {
	mu      *sync.Mutex
	endedBy error
	onEnd   []func()
}

// NewEnding returns the Ending of a Member that has not ended.
func NewEnding(mu *sync.Mutex) Ending { return Ending{mu: mu} }

// EndedBy is why the session ended, or nil if it has not.
func (e *Ending) EndedBy() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.endedBy
}

// HasEndedLocked says whether the session has ended. The caller holds the mutex.
func (e *Ending) HasEndedLocked() bool { return e.endedBy != nil }

// EndIf ends the session and calls the hooks, unless it has ended before or the condition, which is
// asked with the mutex, does not hold.
func (e *Ending) EndIf(reason error, holds func() bool) bool {
	e.mu.Lock()
	if e.endedBy != nil || !holds() {
		e.mu.Unlock()
		return false
	}
	e.endedBy = reason
	hooks := e.onEnd
	e.mu.Unlock()
	for _, hook := range hooks {
		hook()
	}
	return true
}

// OnEnd has a function called when the session ends, or now if it has.
func (e *Ending) OnEnd(hook func()) {
	e.mu.Lock()
	over := e.endedBy != nil
	if !over {
		e.onEnd = append(e.onEnd, hook)
	}
	e.mu.Unlock()
	if over {
		hook()
	}
}

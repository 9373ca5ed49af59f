package mux

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
)

// Policy is how a Supervisor starts and judges processes of one kind. The Supervisor calls
// Start and Fail without its lock, and every other function with its lock held, so that no
// other function may call the Supervisor.
type Policy[T comparable] struct {
	// Start starts a process. The context ends after Timeout, and when the Supervisor is
	// closed; a caller that goes away does not end it.
	Start   func(ctx context.Context) (T, error)
	Timeout time.Duration
	// Dead says why a process has ended. It is nil for one that has not.
	Dead func(T) error
	// Retired says that a process takes no more work, although it goes on with what it has.
	// May be nil: no process does that.
	Retired func(T) bool
	// Fail ends a process that was started in vain, because the Supervisor is closed.
	Fail func(T, error)
	// Harmless says that the error of a start, or the reason for a process's end, is no
	// reason to wait with the next start. May be nil: every error is one.
	Harmless func(error) bool
	// Started counts starts, and Failed those that failed: not those with an error that is
	// harmless, nor those that Close ended.
	Started, Failed func()
	// Ended is told why a process ended that was in use. It is not told after Close.
	Ended func(reason error)
}

// Supervisor has one process of a kind at a time, for all callers. The zero value of T
// stands for no process.
type Supervisor[T comparable] struct {
	policy Policy[T]
	ctx    context.Context // of starts
	cancel context.CancelFunc

	mu       sync.Mutex
	current  T
	began    time.Time // when the start of current began
	starting *start[T]
	backOff  BackOff
	closed   bool
}

// start is a process that is being started, for all callers that wait for it. The others
// are set when done is closed.
type start[T any] struct {
	done    chan struct{}
	process T
	err     error
}

// NewSupervisor returns a Supervisor without a process.
func NewSupervisor[T comparable](policy Policy[T]) *Supervisor[T] {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:gosec // Close calls it, which gosec does not see in a generic type.
	return &Supervisor[T]{policy: policy, ctx: ctx, cancel: cancel}
}

// Get returns the process that runs, or starts one. All callers wait for the same start,
// and it goes on when the context of any of them ends. The process may end at any time.
func (s *Supervisor[T]) Get(ctx context.Context) (T, error) {
	var none T
	s.mu.Lock()
	s.checkLocked()
	switch {
	case s.closed:
		s.mu.Unlock()
		return none, fault.ErrDraining
	case s.current != none:
		defer s.mu.Unlock()
		return s.current, nil
	case s.starting == nil:
		if err := s.backOff.Err(); err != nil {
			s.mu.Unlock()
			return none, err
		}
		s.starting = &start[T]{done: make(chan struct{})}
		go s.start(s.starting)
	}
	starting := s.starting
	s.mu.Unlock()
	select {
	case <-starting.done:
		return starting.process, starting.err
	case <-ctx.Done():
		return none, fmt.Errorf("wait for server to start: %w", ctx.Err())
	}
}

// checkLocked lets go of a process that is of no more use. One that is dead calls Ended in
// a moment, but a caller that knows already must not get it again.
func (s *Supervisor[T]) checkLocked() {
	var none T
	if s.current == none {
		return
	}
	if reason := s.policy.Dead(s.current); reason != nil {
		s.endedLocked(reason)
	} else if s.policy.Retired != nil && s.policy.Retired(s.current) {
		s.current = none
	}
}

func (s *Supervisor[T]) start(into *start[T]) {
	defer close(into.done)
	ctx, cancel := context.WithTimeout(s.ctx, s.policy.Timeout)
	defer cancel()
	began := time.Now()
	process, err := s.policy.Start(ctx)
	if closed := s.settle(into, process, began, err); closed && err == nil {
		s.policy.Fail(process, fault.ErrDraining) // which calls Ended, so the lock is free
	}
}

// settle makes the outcome of a start known, and says whether it comes too late.
func (s *Supervisor[T]) settle(into *start[T], process T, began time.Time, err error) (closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting = nil
	if err == nil {
		err = s.policy.Dead(process) // it called Ended while it was unknown here
	}
	switch {
	case s.closed:
		into.err = fault.ErrDraining
		return true
	case err == nil:
		s.current, s.began, into.process = process, began, process
		s.policy.Started()
		return false
	}
	into.err = err
	if !s.harmless(err) {
		s.backOff.Failed(err, OnDemand)
		s.policy.Failed()
	}
	return false
}

func (s *Supervisor[T]) harmless(err error) bool {
	return s.policy.Harmless != nil && s.policy.Harmless(err)
}

// Ended is told why a process has ended. A process must call it before it tells its users,
// so that one that tries again at once does not get the same process.
func (s *Supervisor[T]) Ended(over T, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == over { // or else it is known, or settle finds it dead
		s.endedLocked(reason)
	}
}

func (s *Supervisor[T]) endedLocked(reason error) {
	var none T
	s.current = none
	if s.closed {
		return
	}
	if time.Since(s.began) >= Lasting || s.harmless(reason) {
		s.backOff.Reset()
	} else {
		s.backOff.Failed(reason, OnDemand)
	}
	s.policy.Ended(reason)
}

// Current is the process that is in use, if there is one.
func (s *Supervisor[T]) Current() (process T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none T
	return s.current, s.current != none
}

// Context ends with Close.
func (s *Supervisor[T]) Context() context.Context { return s.ctx }

// Close starts nothing more, ends a start that is under way, and returns the process that
// is in use, if there is one, for the caller to end. It does not wait.
func (s *Supervisor[T]) Close() (process T, ok bool) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	return s.Current()
}

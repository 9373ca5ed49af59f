package mux

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
)

// Policy says how a Supervisor starts and judges processes. The Supervisor calls Start and Fail
// without its lock, and every other function with it. So the other functions must not call the
// Supervisor.
type Policy[T comparable] struct {
	// Start starts a process. The context ends after Timeout and with Close. It does not end with the
	// caller of Get, since all callers wait for the same start.
	Start   func(ctx context.Context) (T, error)
	Timeout time.Duration
	// Dead returns why a process has ended, or nil if it runs.
	Dead func(T) error
	// Retired reports whether a process takes no more work, although it finishes what it has. If it is
	// nil, no process retires.
	Retired func(T) bool
	// Fail ends a process whose start succeeds after Close.
	Fail func(T, error)
	// Harmless reports whether the next start need not wait after an error of a start, or after the
	// reason for a process's end. If it is nil, every error counts.
	Harmless func(error) bool
	// Started counts starts that succeed, and Failed those that fail. Starts with a harmless error, or
	// that Close ends, count as neither.
	Started, Failed func()
	// Ended is called when a process in use has ended, but not after Close.
	Ended func(reason error)
}

// Supervisor keeps one process at a time, for all callers. The zero value of T means no process.
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

// start is a start in progress, for all callers that wait for it.
type start[T any] struct {
	done    chan struct{} // closed once process and err are set
	process T
	err     error
}

// NewSupervisor returns a Supervisor without a process.
func NewSupervisor[T comparable](policy Policy[T]) *Supervisor[T] {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:gosec // Close calls it, which gosec does not see in a generic type.
	return &Supervisor[T]{policy: policy, ctx: ctx, cancel: cancel}
}

// Get returns the process that runs, or starts one. All callers wait for the same start, which goes on
// if the context of a caller ends. The process may end at any time.
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

// checkLocked forgets a process that is dead or retired. A dead process calls Ended soon, but a caller
// that knows of its end must not get it again before that.
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
		s.policy.Fail(process, fault.ErrDraining) // without the lock, because the process calls Ended
	}
}

// settle records the outcome of a start. It reports whether the Supervisor is closed.
func (s *Supervisor[T]) settle(into *start[T], process T, began time.Time, err error) (closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting = nil
	if err == nil {
		err = s.policy.Dead(process) // if the process ended before this, its call of Ended had no effect
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

// Ended records that a process has ended. A process must call it before it tells its users, so that a
// user that tries again at once does not get the same process.
func (s *Supervisor[T]) Ended(process T, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == process { // otherwise checkLocked or settle finds out
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

// Current returns the process in use, if there is one.
func (s *Supervisor[T]) Current() (process T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none T
	return s.current, s.current != none
}

// IsUnused reports whether there is neither a process nor a start, and the next start need not wait.
func (s *Supervisor[T]) IsUnused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkLocked()
	var none T
	return s.current == none && s.starting == nil && s.backOff.Wait() <= 0
}

// Context returns a context that ends with Close.
func (s *Supervisor[T]) Context() context.Context { return s.ctx }

// Close ends all starts, and returns the process in use, if there is one. The caller must end that
// process. Close does not wait.
func (s *Supervisor[T]) Close() (process T, ok bool) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	return s.Current()
}

package relay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Outcome is how a dial or a forward ended.
type Outcome uint8

// Outcomes.
const (
	Connected   Outcome = iota // a dial that succeeded
	Answered                   // a forward that succeeded
	Refused                    // no program listens at the address
	Stranger                   // the program at the address is not the pod
	Unreachable                // nothing was heard from the address in time, or the way there is blocked
	Unready                    // the address can be reached, but the pod took no connection: it closed it, or was slow
	Busy                       // a limit of this pod
	Late                       // the request waited for a connection as long as it could, which says nothing of the pod
	Lost                       // the pod may have got the request, but did not answer
	Cut                        // the answer broke off
	Client                     // the client went away, did not read or broke its body off
	Malformed                  // the request cannot be sent
	outcomes
)

// String is the value of a metric's label.
func (o Outcome) String() string {
	return [...]string{
		"connected", "answered", "refused", "stranger", "unreachable", "unready", "busy", "late", "lost", "cut", "client", "malformed",
	}[o]
}

// DialOutcomes are those of dials.
func DialOutcomes() []Outcome {
	return []Outcome{Connected, Refused, Stranger, Unreachable, Unready, Busy}
}

// ForwardOutcomes are those of forwards.
func ForwardOutcomes() []Outcome {
	return []Outcome{Answered, Refused, Stranger, Unreachable, Unready, Busy, Late, Lost, Cut, Client, Malformed}
}

// DialError says that the relay could not connect to the pod, so the pod got nothing of the request.
type DialError struct {
	Outcome Outcome // Refused, Stranger, Unreachable, Unready, Busy or Late
	Err     error
}

// Error implements error.
func (e *DialError) Error() string { return "connect to pod: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Err }

// Errors of Forward. Each wraps its cause.
var (
	ErrLost      = errors.New("the pod did not answer")
	ErrCut       = errors.New("the pod's answer broke off")
	ErrBody      = errors.New("read the rest of the body")
	ErrClient    = errors.New("the client is gone or does not read")
	ErrMalformed = errors.New("the request cannot be sent in HTTP/1.1")
)

// because wraps the cause in one of the errors above.
func because(err, cause error) error { return fmt.Errorf("%w: %w", err, cause) }

// left is the error of a request whose context has ended.
func left(ctx context.Context) error { return because(ErrClient, context.Cause(ctx)) }

// outcomeOf is how a forward ended that returned the error.
func outcomeOf(err error) Outcome {
	var dial *DialError
	switch {
	case err == nil:
		return Answered
	case errors.Is(err, ErrLost):
		return Lost
	case errors.Is(err, ErrCut):
		return Cut
	case errors.Is(err, ErrMalformed):
		return Malformed
	case errors.As(err, &dial):
		return dial.Outcome
	}
	return Client
}

type counts struct{ dials, forwards [outcomes]atomic.Uint64 }

// Dials counts the connections that the relay tried to make, by outcome.
func (r *Relay) Dials(o Outcome) uint64 { return r.counts.dials[o].Load() }

// Forwards counts the requests that are over, by outcome.
func (r *Relay) Forwards(o Outcome) uint64 { return r.counts.forwards[o].Load() }

// Connections is the number of connections that are open.
func (r *Relay) Connections() int { return int(r.connections.Load()) }

// Streams is the number of requests in flight whose answer is a stream without an end.
func (r *Relay) Streams() int { return r.sum(func(p *pod) int { return p.streams }) }

// Waiting is the number of requests that wait for a place.
func (r *Relay) Waiting() int { return r.sum(func(p *pod) int { return len(p.queue) }) }

// InFlight is the number of requests in flight, streams among them.
func (r *Relay) InFlight() int { return r.sum(func(p *pod) int { return p.inFlight }) }

func (r *Relay) sum(of func(*pod) int) (sum int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		sum += of(p)
	}
	return sum
}

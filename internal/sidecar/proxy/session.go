package proxy

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

var (
	errUnknown   = errors.New("no such session")
	errForgotten = errors.New("the server no longer knows the session")
)

// proxySession is a session that the server keeps. The registry has it by the id that its client
// knows. Only the proxy knows the server's id.
type proxySession struct {
	session.Identity
	session.Ending // guarded by mu
	proxy          *Proxy
	serverID       string

	// over ends when the session has ended and the server knows it. Its cause is the reason.
	over context.Context
	cut  context.CancelCauseFunc

	// confirmed is when the server last accepted a request of this session, in Unix nanoseconds.
	confirmed atomic.Int64

	mu      sync.Mutex
	touched time.Time
	use     places.Use
	calls   int // POST requests in flight
	streams int // GET requests in flight
	// requests are those of the client so far, with initialize.
	requests uint64
}

// newSession returns a session with one call in flight, which opens it.
func (p *Proxy) newSession(serverID, revision string, from *caller.Caller) *proxySession {
	now := time.Now()
	s := &proxySession{
		Identity: session.Identity{Revision: revision, Number: p.Number(), Owner: caller.NewOwner(from), Began: now},
		proxy:    p, serverID: serverID, touched: now, calls: 1, requests: 1,
	}
	s.Ending = session.NewEnding(&s.mu)
	s.confirmed.Store(now.UnixNano())
	s.over, s.cut = context.WithCancelCause(context.Background())
	return s
}

// admits says whether requests of the caller may reach the server. The server itself checks tokens that
// do not say whose they are, and those that it asked for after the session was opened.
func (s *proxySession) admits(from *caller.Caller) bool {
	return s.Owner.Is(from) || s.Owner.IsAnonymous()
}

// enter begins a request of the caller's.
func (s *proxySession) enter(from *caller.Caller, stream bool, use places.Use) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.HasEndedLocked() || !s.admits(from):
		return errUnknown
	case stream && s.streams >= s.proxy.Streams:
		return session.ErrTooManyStreams
	case !stream && s.calls >= s.proxy.Calls:
		return session.ErrTooManyCalls
	}
	s.countLocked(stream, 1)
	s.use = max(s.use, use)
	return nil
}

// note counts the requests among the messages that the client sends.
func (s *proxySession) note(messages []session.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range messages {
		if messages[i].Envelope.Kind == rpc.Request {
			s.requests++
		}
	}
}

// leave ends a request.
func (s *proxySession) leave(stream bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countLocked(stream, -1)
}

func (s *proxySession) countLocked(stream bool, by int) {
	s.touched = time.Now()
	if stream {
		s.streams += by
	} else {
		s.calls += by
	}
}

// Idle is that of session.Member.
func (s *proxySession) Idle() (since time.Time, use places.Use, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.touched, s.use, s.idleLocked()
}

func (s *proxySession) idleLocked() bool { return s.calls+s.streams == 0 }

// Busy is that of session.Member.
func (s *proxySession) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls > 0
}

// Usage is that of session.Member. The proxy holds no messages between requests, and counts what it
// forwards.
func (s *proxySession) Usage() session.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return session.Usage{Requests: s.requests, InFlight: s.calls}
}

// Sweep is that of session.Member. Each exchange has its own timer.
func (s *proxySession) Sweep(context.Context, time.Time) {}

// Yield is that of session.Member.
func (s *proxySession) Yield(since time.Time) bool {
	return s.endIf(session.ErrYielded, func() bool { return s.idleLocked() && s.touched.Equal(since) })
}

// End is that of session.Member.
func (s *proxySession) End(reason error) { s.endIf(reason, always) }

func always() bool { return true }

// endingAtATime bounds how many sessions the server is asked to end at a time.
const endingAtATime = 16

// endIf ends the session if the condition holds. A goroutine of its own tells the server. Other code
// that ends the session with EndIf closes it, too.
func (s *proxySession) endIf(reason error, holds func() bool) bool {
	if !s.EndIf(reason, holds) {
		return false
	}
	go func() {
		s.proxy.ending <- struct{}{}
		defer func() { <-s.proxy.ending }()
		s.close(context.Background(), http.Header{})
	}()
	return true
}

// close tells the server first, so that it can end streams in its own way.
func (s *proxySession) close(ctx context.Context, header http.Header) {
	defer s.cut(s.EndedBy())
	s.proxy.tell(ctx, http.MethodDelete, s, header, nil)
}

// Done is that of session.Member.
func (s *proxySession) Done() <-chan struct{} { return s.over.Done() }

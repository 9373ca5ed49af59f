package access

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// streamGrace is how long a stream that only listens outlives its token. A client that refreshes its token
// in time opens another stream before.
const streamGrace = 30 * time.Second

// Reasons why the Gate ends a stream.
var (
	ErrExpired = errors.New("the token of this stream has expired: open it again with a new one")
	ErrRevoked = errors.New("the rules of this server have changed, and leave you nothing")
)

// streams are those that only listen: they carry no message of the client that the rules could be asked
// about again.
type streams struct {
	mu   sync.Mutex
	open map[*openStream]struct{}
}

type openStream struct {
	who *identity.Identity
	end context.CancelCauseFunc
}

// Listen returns a context for a stream of the caller. It ends some time after the token has expired, and
// at once when a document takes effect that leaves the caller nothing. The function must be called when
// the stream is over.
func (g *Gate) Listen(ctx context.Context, grant *Grant) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stream := &openStream{who: grant.Identity, end: cancel}
	stop := func() bool { return true }
	if grant.Identity != nil {
		timer := time.AfterFunc(time.Until(grant.Identity.Expires.Add(streamGrace)), func() { cancel(ErrExpired) })
		stop = timer.Stop
	}
	g.streams.add(stream)
	if !g.Keeps(stream.who) {
		cancel(ErrRevoked) // the document has changed since the request was authenticated
	}
	return ctx, func() {
		stop()
		g.streams.remove(stream)
		cancel(nil)
	}
}

func (g *Gate) generation() int64 {
	if now := g.current.Load(); now != nil {
		return now.access.Generation
	}
	return 0
}

func (s *streams) add(stream *openStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*openStream]struct{}{}
	}
	s.open[stream] = struct{}{}
}

func (s *streams) remove(stream *openStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, stream)
}

// recheck ends the streams of callers that a new document leaves nothing.
func (s *streams) recheck(g *Gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream := range s.open {
		if !g.Keeps(stream.who) {
			stream.end(ErrRevoked)
		}
	}
}

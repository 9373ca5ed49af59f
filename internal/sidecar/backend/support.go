package backend

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

const (
	// supportTimeout is for the server to say whether it has sessions. Clients that want a
	// session wait as long.
	supportTimeout = 5 * time.Second
	// supportTTL is how long the adapter relies on an answer that may be another next time,
	// such as that of a server that is still starting.
	supportTTL = 10 * time.Second
)

// sessionSupport knows whether a server that speaks the revision without sessions has sessions
// as well. It asks the server once for all clients that want to know.
type sessionSupport struct {
	ask func(ctx context.Context) (has, certain bool, err error)
	log logr.Logger

	mu   sync.Mutex
	last *supportQuery
}

// supportQuery is a question to the server. The rest is its answer, once done is closed.
type supportQuery struct {
	digest string // of the server's catalog
	done   chan struct{}

	has     bool
	expires time.Time // zero is never
}

// isValid says whether the answer holds for a server with this catalog, or is yet to come.
func (q *supportQuery) isValid(digest string) bool {
	select {
	case <-q.done:
		return q.digest == digest && (q.expires.IsZero() || time.Now().Before(q.expires))
	default:
		return true
	}
}

// has says whether the server with this catalog has sessions. As long as the server does not
// say, it is assumed to have some, so that clients ask it themselves.
func (s *sessionSupport) has(ctx context.Context, digest string) bool {
	s.mu.Lock()
	if s.last == nil || !s.last.isValid(digest) {
		s.last = &supportQuery{digest: digest, done: make(chan struct{})}
		go s.query(context.WithoutCancel(ctx), s.last)
	}
	last := s.last
	s.mu.Unlock()
	select {
	case <-last.done:
		return last.has
	case <-ctx.Done():
		return true // the client is gone
	}
}

// query asks the server. It does not end with the client that it was started for, because
// others may wait for it.
func (s *sessionSupport) query(ctx context.Context, q *supportQuery) {
	defer close(q.done)
	ctx, cancel := context.WithTimeout(ctx, supportTimeout)
	defer cancel()
	has, certain, err := s.ask(ctx)
	q.has = has || err != nil
	if !certain {
		q.expires = time.Now().Add(supportTTL)
	}
	switch {
	case err != nil:
		s.log.V(1).Info("The server does not say whether it has sessions; clients ask it themselves", "error", err.Error())
	case !has:
		s.log.Info("The server has no sessions; clients that need one are translated", "certain", certain)
	}
}

package backend

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// The adapter asks a server again whether it has sessions when the last answer may have been
// another, or is that of another server. It relies on an answer that is certain.
func TestSessionSupportIsAskedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		certain bool
		err     error
		later   time.Duration
		digest  string
		has     bool // at first
		want    int  // times that the server is asked
	}{
		"certain":               {certain: true, later: time.Hour, digest: "a", want: 1},
		"certain, other server": {certain: true, digest: "b", want: 2},
		"perhaps, soon":         {later: supportTTL - 1, digest: "a", want: 1},
		"perhaps, later":        {later: supportTTL, digest: "a", want: 2},
		"silent, soon":          {err: errors.New("silent"), later: supportTTL - 1, digest: "a", has: true, want: 1},
		"silent, later":         {err: errors.New("silent"), later: supportTTL, digest: "a", has: true, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				s := sessionSupport{log: logr.Discard(), ask: func(context.Context) (has, certain bool, err error) {
					asked++
					return false, test.certain, test.err
				}}
				if got := s.has(t.Context(), "a"); got != test.has {
					t.Errorf("has sessions: %t", got)
				}
				time.Sleep(test.later)
				s.has(t.Context(), test.digest)
				if asked != test.want {
					t.Errorf("asked %d times, want %d", asked, test.want)
				}
			})
		})
	}
}

// All clients that want a session wait for one question, which ends in time, also if the
// client goes away that it was asked for.
func TestSessionSupportIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		s := sessionSupport{log: logr.Discard(), ask: func(ctx context.Context) (has, certain bool, err error) {
			asked++
			<-ctx.Done()
			return false, false, ctx.Err()
		}}
		first, leave := context.WithCancel(t.Context())
		began := time.Now()
		for _, ctx := range []context.Context{first, t.Context(), t.Context()} {
			go func() {
				if !s.has(ctx, "a") {
					t.Error("a server that does not answer has no sessions")
				}
			}()
			synctest.Wait()
		}
		leave()
		s.has(t.Context(), "a")
		if took := time.Since(began); took != supportTimeout || asked != 1 {
			t.Errorf("asked %d times, in %s", asked, took)
		}
	})
}

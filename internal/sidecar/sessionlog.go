package sidecar

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// The log calls sessions by numbers, since ids are secret.
// Where a session has a process of its own, the number is that in front of what the
// process writes to its standard error.

// numbered gives sessions numbers that have no process of their own.
func (a *Adapter) numbered(open opener) opener {
	return func(ctx context.Context, from *caller.Caller) (*session.Session, error) {
		opened, err := open(ctx, from)
		if err == nil {
			opened.Number = a.nextNumber()
		}
		return opened, err
	}
}

func (a *Adapter) nextNumber() string { return strconv.FormatUint(a.number.Add(1), 10) }

// noteSession logs a session that was opened, and its end. The manager opens one with every
// probe, which is no news.
func (a *Adapter) noteSession(ctx context.Context, opened session.Member) {
	begin, about, client := time.Now(), opened.About(), introductionOf(ctx)
	level := 0
	if client.probe {
		level = 1
	}
	says := []any{"session", about.Number}
	if client != (introduction{}) { // clients of 2024-11-05 introduce themselves later
		says = append(says, "client", client.name, "clientVersion", client.version, "revision", shown(about.Revision))
	}
	a.config.Log.V(level).Info("Session opened", says...)
	opened.OnEnd(func() {
		lasted, reason := time.Since(begin), opened.EndedBy()
		a.config.Log.V(1).Info("Session ended", "session", about.Number, "reason", fault.Brief(reason), "lasted", lasted.Round(time.Millisecond).String())
		a.requests.SessionEnded(about.Revision, lasted, reason)
	})
}

// logProcessEnd logs how the process of a session ended, unless it was told to. Its
// last words are in the log already.
func (a *Adapter) logProcessEnd(server *child.Server, reason error) {
	if !errors.Is(reason, session.ErrEnded) {
		a.config.Log.Info("Server process of a session ended", "session", server.Label(), "reason", fault.Brief(reason))
	}
}

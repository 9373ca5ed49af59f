package sidecar

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
)

// StatelessClients says what clients of revision 2026-07-28 get from a server that has
// sessions only.
type StatelessClients uint8

// What they get.
const (
	// Native refuses them, in the way on which clients that know both eras open a session.
	Native StatelessClients = iota
	// Translate serves them, with one process for all clients that have the same token, or
	// that have the same address and no token.
	Translate
)

func (s StatelessClients) String() string { return [...]string{"Native", "Translate"}[s] }

// Set makes a StatelessClients a flag.
func (s *StatelessClients) Set(text string) error {
	for _, known := range []StatelessClients{Native, Translate} {
		if known.String() == text {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("want Native or Translate, not %q", text)
}

// translates says whether clients without sessions are served by servers with sessions
// only. Where all sessions share a process, there is nothing to keep apart.
func (c *Config) translates() bool { return c.Shared || c.StatelessClients == Translate }

// eraRetry is between two tries to find out what a server speaks.
const eraRetry = 30 * time.Second

// findEra finds out whether a stdio server that has sessions speaks the other era, too, so
// that the catalogue says so before a client asks. That takes a process of its own: asking
// the keeper's would leave that in doubt, and some servers end when they are asked.
func (a *Adapter) findEra(ctx context.Context) {
	if a.config.Transport != Stdio || a.config.Era != sessionless.Auto || a.config.translates() {
		return
	}
	for ctx.Err() == nil {
		state, err := a.await(ctx, func(s *keeper.State) bool { return s.Ready })
		if err != nil || state.Stateless {
			return
		}
		era, err := a.backend.eras.stateless.Era(ctx)
		if err == nil {
			if era == sessionless.Modern {
				a.keeper.Refresh()
			}
			return
		}
		a.config.Log.V(1).Info("Cannot find out whether the server speaks revision "+front.Revision20260728, "error", err.Error())
		mux.Pause(ctx, eraRetry)
	}
}

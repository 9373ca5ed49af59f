package sidecar

import (
	"context"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
)

// eraRetry is between two tries to find out what a server speaks.
const eraRetry = 30 * time.Second

// findEra finds out whether a stdio server that has sessions speaks the other era, too, so
// that the catalogue says so before a client asks. That takes a process of its own: asking
// the keeper's would leave that in doubt, and some servers end when they are asked.
func (a *Adapter) findEra(ctx context.Context) {
	if a.config.Transport != config.Stdio || a.config.Era != stateless.Auto || a.config.Translates() {
		return
	}
	for ctx.Err() == nil {
		state, err := a.await(ctx, func(s *keeper.State) bool { return s.Ready })
		if err != nil || state.Stateless {
			return
		}
		era, err := a.backend.eras.stateless.Era(ctx)
		if err == nil {
			if era == stateless.Modern {
				a.keeper.Refresh()
			}
			return
		}
		a.config.Log.V(1).Info("Cannot find out whether the server speaks revision "+front.Revision20260728, "error", err.Error())
		mux.Pause(ctx, eraRetry)
	}
}

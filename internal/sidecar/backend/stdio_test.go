package backend

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
)

// The client of a server that the keeper learns nothing of waits for the keeper for half of
// its time, and has the other half for the server to say what is wrong with it.
func TestClientWaitsForTheKeeperUpToALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config.Defaults()
		cfg.Log = logr.Discard()
		env := &Env{Config: cfg, Keeper: keeper.New(keeper.Options{})} // which does not run
		server := newProcesses(env, newPool(env, nil, 1, time.Second), sessionless.Bound{}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), cfg.StartTimeout)
		defer cancel()
		began := time.Now()
		hasSessions, err := server.hasSessions(ctx)
		if took := time.Since(began); !hasSessions || err != nil || took != cfg.StartTimeout/2 {
			t.Errorf("has sessions: %t, %v, after %s of %s", hasSessions, err, took, cfg.StartTimeout)
		}
	})
}

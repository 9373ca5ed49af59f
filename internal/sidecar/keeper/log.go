package keeper

import (
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
)

// logFailure logs why a server failed. It logs a failure like the one before at a higher verbosity.
func (k *Keeper) logFailure(answered bool, reason adapterapi.Reason, err error) {
	failure := string(reason)
	if reason != adapterapi.Silent { // a silent server fails twice, with other errors: when it is late, and when it is given up
		failure += fault.Brief(err)
	}
	k.mu.Lock()
	level := 0
	if k.logged == failure {
		level = 1
	}
	k.logged = failure
	answeredBefore := k.answered
	k.mu.Unlock()
	var message string
	switch {
	case reason == adapterapi.Starting:
		message = "Waiting for the server's container"
	case reason == adapterapi.NoRoom:
		message = "There is no room for a process to look after"
	case reason == adapterapi.Unauthorized:
		message = "Server is there, and asks for credentials before it tells what it offers"
	case answered:
		message = "Server was lost"
	case answeredBefore:
		message = "Server does not work any more"
	default:
		message = "Server does not work yet"
	}
	k.options.Log.V(level).Info(message, "reason", reason, "error", fault.Brief(err))
}

// logReady logs that a server has answered, at a higher verbosity if the server was ready before.
func (k *Keeper) logReady(already bool, l listing, took time.Duration) {
	level := 0
	k.mu.Lock()
	k.answered = true
	if already {
		level = 1
	} else {
		k.logged = ""
	}
	k.mu.Unlock()
	about := []any{"took", took.Round(time.Millisecond).String()}
	if l.catalog != nil {
		about = append(about, "tools", len(l.catalog.Tools))
	} else {
		about = append(about, "error", fault.Brief(l.err))
	}
	k.options.Log.V(level).Info("Server is ready", about...)
}

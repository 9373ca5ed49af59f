package keeper

import (
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
)

// story is what the log was told so far, so that it is told news only.
type story struct {
	worked bool   // a server has answered, at any time
	told   string // the failure that was told last
}

// logFailure tells why a server failed. Keepers fail again and again for the same
// reason, so that is for those who want to know more.
func (k *Keeper) logFailure(answered bool, reason adapterapi.Reason, err error) {
	news := string(reason)
	if reason != adapterapi.Silent { // which is first noticed, and then given up, in other words
		news += fault.Brief(err)
	}
	k.mu.Lock()
	level := 0
	if k.story.told == news {
		level = 1
	}
	k.story.told = news
	worked := k.story.worked
	k.mu.Unlock()
	var message string
	switch {
	case reason == adapterapi.NoRoom:
		message = "There is no room for a process to look after"
	case reason == adapterapi.Unauthorized:
		message = "Server is there, and asks for credentials before it tells what it offers"
	case answered:
		message = "Server was lost"
	case worked:
		message = "Server does not work any more"
	default:
		message = "Server does not work yet"
	}
	k.options.Log.V(level).Info(message, "reason", reason, "error", fault.Brief(err))
}

// logReady tells that a server has answered. One that only takes another's place is
// no news.
func (k *Keeper) logReady(already bool, l listed, took time.Duration) {
	k.mu.Lock()
	k.story.worked = true
	level := 0
	if already {
		level = 1
	} else {
		k.story.told = ""
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

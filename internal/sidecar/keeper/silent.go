package keeper

import (
	"fmt"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// strayBytes is how much of a stray line an error shows.
const strayBytes = 120

// noteStray is called with each line of a server's output that is not a message. Such a line explains
// a silent server best: one that logs to standard output, or waits for connections. The keeper
// keeps the first line until a server answers. Later lines may differ only by a time, and the
// error of a server that stays broken must not change.
func (k *Keeper) noteStray(line []byte) {
	k.mu.Lock()
	if k.stray == "" {
		k.stray = rpc.ClipTo(line, strayBytes)
	}
	w := k.waiting
	k.mu.Unlock()
	if w != nil {
		k.reportLate(w)
	}
}

// silent returns the error of a server that has not answered within its patience, or within
// StartTimeout if it has an excuse.
func (k *Keeper) silent(patience time.Duration, cause error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.excusedLocked() {
		patience = k.options.StartTimeout
	}
	return &silentError{patience: patience, stray: k.stray, cause: cause}
}

// silentError says that a server runs and has not answered. Its text is the same while the keeper
// waits for the server and after it has given up.
type silentError struct {
	patience time.Duration
	stray    string // may hold secrets
	cause    error  // nil while the keeper waits for the server
}

func (e *silentError) Error() string {
	if e.stray == "" {
		return e.Brief()
	}
	return fmt.Sprintf("%s; it wrote text that is not MCP to standard output: %q", e.Brief(), e.stray)
}

// Brief is the error without what the server wrote.
func (e *silentError) Brief() string {
	return fmt.Sprintf("the server runs and has not answered for more than %s", e.patience.Round(time.Second/10))
}

func (e *silentError) Unwrap() error { return e.cause }

package keeper

import (
	"fmt"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// noiseBytes is how much of a line that is no message is shown.
const noiseBytes = 120

// noise is what servers write in place of messages. One that prints its log to standard
// output, or that waits for connections instead of reading its input, is silent in the
// protocol; what it printed is what explains it.
type noise struct {
	mu    sync.Mutex
	first string // of the first server since the last that answered
}

// hear is called with every line that is no message. The first one stays, whatever the
// next servers print: it may have the time in it, and what is said of a server that is
// broken in the same way as before must not change.
func (n *noise) hear(line []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.first == "" {
		n.first = rpc.ClipTo(line, noiseBytes)
	}
}

func (n *noise) heard() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.first
}

func (n *noise) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.first = ""
}

// silence is the error of a server that runs and has not answered: while it is waited
// for, and after it was given up, in the same words.
type silence struct {
	patience time.Duration
	noise    string // may be secret
	cause    error  // nil while the server is waited for
}

func (s *silence) Error() string {
	if s.noise == "" {
		return s.Brief()
	}
	return fmt.Sprintf("%s; it wrote to standard output what is no message: %q", s.Brief(), s.noise)
}

// Brief is without what the server wrote.
func (s *silence) Brief() string {
	return fmt.Sprintf("the server runs and has not answered for more than %s", s.patience.Round(time.Second/10))
}

func (s *silence) Unwrap() error { return s.cause }

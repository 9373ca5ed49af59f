package keeper

import (
	"fmt"
	"sync"
)

// noiseBytes is how much of a line that is no message is shown.
const noiseBytes = 120

// noise is what a server writes in place of messages. A server that prints its log to
// standard output, or that waits for connections instead of reading its input, is
// silent in the protocol; what it printed is what explains it.
type noise struct {
	next func(line []byte) // whom to tell, too; may be nil

	mu    sync.Mutex
	first string
}

// hear is called with every line that is no message. The first one is kept: it is the
// same with every attempt, so what is said of the server does not change.
func (n *noise) hear(line []byte) {
	n.mu.Lock()
	if n.first == "" {
		n.first = string(line[:min(len(line), noiseBytes)])
	}
	n.mu.Unlock()
	if n.next != nil {
		n.next(line)
	}
}

// with adds what was heard to what went wrong.
func (n *noise) with(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.first == "" {
		return err
	}
	return fmt.Errorf("%w; it wrote to standard output what is no message: %q", err, n.first)
}

package session

import (
	"slices"
	"sync"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// mostEndings is how many endings are remembered.
const mostEndings = 256

// Endings remember why the sessions ended that ended last, so that their clients can be
// told. The zero value is ready to use.
type Endings struct {
	mu   sync.Mutex
	last []ending // oldest first
}

type ending struct {
	id     string
	owner  *caller.Owner
	reason error
}

// add notes that a session has ended. The reason is one for clients to read.
func (e *Endings) add(id string, owner *caller.Owner, reason error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = appendLast(e.last, ending{id, owner, reason}, mostEndings)
}

// appendLast appends an item to a list that keeps only so many, the last ones.
func appendLast[T any](list []T, item T, most int) []T {
	if len(list) >= most {
		list = slices.Delete(list, 0, 1)
	}
	return append(list, item)
}

// Text is for a client that names a session which is not there: why it ended, if it was the
// caller's and not long ago.
func (e *Endings) Text(id string, from *caller.Caller) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.last {
		if known := &e.last[i]; known.id == id && known.owner.Is(from) {
			return "no such session, it has ended: " + known.reason.Error() + "; begin again with initialize"
		}
	}
	return "no such session: it has ended or never was; begin again with initialize"
}

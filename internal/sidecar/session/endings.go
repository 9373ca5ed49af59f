package session

import (
	"slices"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// mostEndings is how many endings a registry remembers.
const mostEndings = 256

// ending is why a session has ended.
type ending struct {
	id     string
	owner  *caller.Owner
	reason error
}

// appendLast appends an item to a list that keeps only so many, the last ones.
func appendLast[T any](list []T, item T, most int) []T {
	if len(list) >= most {
		list = slices.Delete(list, 0, 1)
	}
	return append(list, item)
}

// NoSuch is the text for a client that names an unknown session. It says why the session
// ended, if it was one of the last that ended and belonged to the client.
func (r *Registry) NoSuch(id string, from *caller.Caller) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.endings {
		if known := &r.endings[i]; known.id == id && known.owner.Is(from) {
			return "no such session, it has ended: " + known.reason.Error() + "; begin again with initialize"
		}
	}
	return "no such session: it has ended or never was; begin again with initialize"
}

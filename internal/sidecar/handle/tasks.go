package handle

import (
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// Bounds of the tasks that a Binder remembers. A task beyond them is unknown to its owner, too.
const (
	mostTasks        = 4096
	mostTasksOfOwner = 1024
	longestTask      = 4096 // bytes of an id
)

// digest stands for a principal or a task id, which can be long.
type digest [sha256.Size]byte

// tasks remembers who began which task. Servers may count tasks in each session, so two principals can have
// tasks with the same id. The zero value remembers none.
type tasks struct {
	mu     sync.Mutex
	owners map[digest]*owned
	count  int
}

// owned are the tasks of one principal.
type owned struct {
	ids   map[digest]struct{}
	order []digest // oldest first
}

// record remembers that a principal began a task. If there is no room, it forgets the oldest task of the
// principal that has most.
func (t *tasks) record(by caller.Principal, id []byte) {
	if len(id) > longestTask {
		return
	}
	who, task := sha256.Sum256([]byte(by)), digest(sha256.Sum256(id))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.owners == nil {
		t.owners = map[digest]*owned{}
	}
	if of := t.owners[who]; of != nil {
		if _, known := of.ids[task]; known {
			return
		}
		if len(of.order) == mostTasksOfOwner {
			t.forgetOldestLocked(who)
		}
	}
	if t.count == mostTasks {
		t.forgetOldestLocked(t.richestLocked())
	}
	of := t.owners[who]
	if of == nil {
		of = &owned{ids: map[digest]struct{}{}}
		t.owners[who] = of
	}
	of.ids[task] = struct{}{}
	of.order = append(of.order, task)
	t.count++
}

func (t *tasks) richestLocked() (who digest) {
	most := 0
	for candidate, of := range t.owners {
		if len(of.order) > most {
			who, most = candidate, len(of.order)
		}
	}
	return who
}

func (t *tasks) forgetOldestLocked(who digest) {
	of := t.owners[who]
	delete(of.ids, of.order[0])
	of.order = slices.Delete(of.order, 0, 1)
	t.count--
	if len(of.order) == 0 {
		delete(t.owners, who)
	}
}

// has reports whether the principal began the task.
func (t *tasks) has(by caller.Principal, id []byte) bool {
	if len(id) > longestTask {
		return false
	}
	who, task := sha256.Sum256([]byte(by)), digest(sha256.Sum256(id))
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.owners[who]
	if of == nil {
		return false
	}
	_, known := of.ids[task]
	return known
}

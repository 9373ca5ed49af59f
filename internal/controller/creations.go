package controller

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// creations bounds how many servers are created at a time. To create one takes about 15
// requests in a row. A hundred servers that are applied at once keep the API server busy.
// Without a bound they would also keep all workers busy, and a server whose pod is ready would
// wait for seconds before its status says so.
type creations struct {
	most int

	mu      sync.Mutex
	running map[types.NamespacedName]struct{}
	waiting []types.NamespacedName // the line: longest wait first
}

// begin says whether a server may be created now. If not, the server joins the line, and end
// returns it when its turn has come.
func (c *creations) begin(server types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.running[server]; ok {
		return true // end has reserved this place
	}
	if len(c.running) < c.most {
		c.setLocked(server)
		return true
	}
	if !slices.Contains(c.waiting, server) {
		c.waiting = append(c.waiting, server)
	}
	return false
}

// end gives up the place of a server, if it has one, and reserves it for the server that has
// waited longest. The caller must have that one reconciled.
func (c *creations) end(server types.NamespacedName) (next types.NamespacedName, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(other types.NamespacedName) bool { return other == server })
	if _, had := c.running[server]; !had {
		return next, false
	}
	delete(c.running, server)
	if len(c.waiting) == 0 {
		return next, false
	}
	next, c.waiting = c.waiting[0], c.waiting[1:]
	c.setLocked(next)
	return next, true
}

func (c *creations) setLocked(server types.NamespacedName) {
	if c.running == nil {
		c.running = map[types.NamespacedName]struct{}{}
	}
	c.running[server] = struct{}{}
}

// inLine is how many servers wait.
func (c *creations) inLine() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// beginCreation says whether to go on with a server. One that has to be created may have to wait
// for its turn. A server that has pods is looked after at once. So is one that could not be
// created: its retries back off by themselves, and a reconciliation that only joins the line would
// make the work queue forget how often they failed.
func (r *Reconciler) beginCreation(s *state) bool {
	if s.deployment() != nil || len(s.pods) > 0 || r.retries(s.name) > 0 {
		return true
	}
	return r.creations.begin(s.name)
}

// retries is how often the reconciliation of a server has failed in a row.
func (r *Reconciler) retries(server types.NamespacedName) int {
	if queue := r.queue.Load(); queue != nil {
		return (*queue).NumRequeues(reconcile.Request{NamespacedName: server})
	}
	return 0
}

// endCreation gives up the place of a server among those that are created, and has the next
// one reconciled.
func (r *Reconciler) endCreation(server types.NamespacedName) {
	if next, ok := r.creations.end(server); ok {
		r.enqueue(next)
	}
}

package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// memory is what the controller keeps of one server from one reconciliation to the next. Without it
// the controller asks and writes more, and decides the same. No lock protects it, because
// controller-runtime never reconciles one server twice at a time.
type memory struct {
	applied map[workload.ObjectID]applied // what was applied last, and the result
	keys    knownKeys
	access  knownAccess
	bundles map[mcpv1alpha1.ConfigMapKey]knownBundle // certificates of issuers
	warned  map[string]bool                          // reasons of warning Events, until the reason is gone
	refused map[types.UID]uint64                     // refusals of each pod that the manager has reported

	instances []prober.Instance // that the prober last got
	scaleDown scaleDown
	ranked    string    // the template for which deletion costs were written last
	leaves    types.UID // the server, if its namespace is being deleted

	sessionsAt time.Time // when their number was published
	drainingAt time.Time // when the number of those that are in draining pods was
	processes  publishedProcesses

	// statusWrite awaits the last status that the manager wrote. The mark is the resource
	// version that the write replaced: any other version is newer.
	statusWrite awaitedWrite
	// revisionWrite awaits the last ControllerRevision that the manager created, by its name.
	revisionWrite awaitedWrite
}

// memories are those of all servers.
type memories struct {
	mu      sync.Mutex
	servers map[types.NamespacedName]*memory
}

// of is the memory of a server, which is empty for a new one.
func (m *memories) of(server types.NamespacedName) *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.servers == nil {
		m.servers = map[types.NamespacedName]*memory{}
	}
	if m.servers[server] == nil {
		m.servers[server] = &memory{}
	}
	return m.servers[server]
}

// instances returns the instances that the prober last got.
func (m *memories) instances(server types.NamespacedName) []prober.Instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.servers[server]; known != nil {
		return known.instances
	}
	return nil
}

// forget forgets a server, but for these instances of it.
func (m *memories) forget(server types.NamespacedName, left []prober.Instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(left) > 0 {
		m.servers[server] = &memory{instances: left}
		return
	}
	delete(m.servers, server)
}

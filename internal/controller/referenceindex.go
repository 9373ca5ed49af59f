package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// referenceIndex knows which servers refer to an object, and what was found there
// when it was last read. It fills itself as servers are reconciled: each of them is,
// when the manager starts.
type referenceIndex struct {
	mu      sync.Mutex
	servers map[types.NamespacedName]*referrer
	users   map[namespacedRef]map[types.NamespacedName]struct{}
}

type namespacedRef struct {
	namespace string
	objectRef
}

type referrer struct {
	refs     []namespacedRef
	versions string
	key      adapterapi.Key
	checked  checkedReferences
}

// set replaces what a server refers to. It calls unused with what no server refers to any more,
// while the index is locked: another server may be about to refer to it.
func (x *referenceIndex) set(server types.NamespacedName, references []reference, unused func(namespacedRef)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.servers == nil {
		x.servers = map[types.NamespacedName]*referrer{}
		x.users = map[namespacedRef]map[types.NamespacedName]struct{}{}
	}
	known := x.servers[server]
	if known == nil {
		if len(references) == 0 {
			return
		}
		known = &referrer{}
		x.servers[server] = known
	}
	before := known.refs
	x.unlink(server, known)
	for _, reference := range references {
		ref := namespacedRef{server.Namespace, reference.objectRef}
		known.refs = append(known.refs, ref)
		if x.users[ref] == nil {
			x.users[ref] = map[types.NamespacedName]struct{}{}
		}
		x.users[ref][server] = struct{}{}
	}
	x.reportUnusedLocked(before, unused)
}

func (x *referenceIndex) reportUnusedLocked(refs []namespacedRef, unused func(namespacedRef)) {
	for _, ref := range refs {
		if len(x.users[ref]) == 0 {
			unused(ref)
		}
	}
}

func (x *referenceIndex) unlink(server types.NamespacedName, known *referrer) {
	for _, ref := range known.refs {
		delete(x.users[ref], server)
		if len(x.users[ref]) == 0 {
			delete(x.users, ref)
		}
	}
	known.refs = nil
}

// usersOf are the servers that refer to an object.
func (x *referenceIndex) usersOf(namespace string, object objectRef) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	var servers []types.NamespacedName
	for server := range x.users[namespacedRef{namespace, object}] {
		servers = append(servers, server)
	}
	return servers
}

// recall returns what was found when the objects had these versions.
func (x *referenceIndex) recall(server types.NamespacedName, versions string, key adapterapi.Key) (checkedReferences, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	known := x.servers[server]
	if known == nil || known.versions != versions || known.key != key {
		return checkedReferences{}, false
	}
	return known.checked, true
}

func (x *referenceIndex) remember(server types.NamespacedName, versions string, key adapterapi.Key, checked checkedReferences) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if known := x.servers[server]; known != nil {
		known.versions, known.key, known.checked = versions, key, checked
	}
}

// forget forgets a server. It calls unused as set does.
func (x *referenceIndex) forget(server types.NamespacedName, unused func(namespacedRef)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	known := x.servers[server]
	if known == nil {
		return
	}
	before := known.refs
	x.unlink(server, known)
	delete(x.servers, server)
	x.reportUnusedLocked(before, unused)
}

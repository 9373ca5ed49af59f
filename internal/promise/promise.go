// Package promise has what users can rely on, as constants that tests assert and that
// the documentation is compared with.
package promise

import "time"

const (
	// Ready is from apply to Ready and Verified, with the image on the node.
	Ready = 3 * time.Second

	// Broken is from the moment a server breaks until Ready is False and the status
	// names the cause.
	Broken = 15 * time.Second

	// Death is from the death of a server's process until the client whose call was
	// in flight has a JSON-RPC error.
	Death = 100 * time.Millisecond

	// Settings is from the change of allowed hosts, allowed origins or the verbosity until
	// running pods go by it.
	Settings = 2 * time.Second

	// Access is from the change of auth, access or audit until running pods enforce it.
	Access = 10 * time.Second

	// AccessPushed is how soon a change of auth, access or audit is on its way to a pod that the manager
	// reaches. Until it is enforced, Access counts.
	AccessPushed = time.Second

	// ListPushed is how soon a list of a server's pods is on its way to each of them after the manager has seen that one
	// comes, becomes ready, is deleted or is gone.
	ListPushed = 100 * time.Millisecond

	// ScaleDown is from a smaller number of replicas until the first pod is deleted.
	ScaleDown = 5 * time.Second

	// NewKey is from the first token that an issuer has signed with a new key until pods accept it.
	NewKey = 12 * time.Second

	// WithdrawnKey is from the moment when an issuer withdraws a key until the manager sends pods a
	// document without it.
	WithdrawnKey = 5 * time.Minute

	// StaleKeys is how long an issuer may be away until an Event says that its last keys are still in use.
	// The Event comes with the next attempt to fetch them.
	StaleKeys = 24 * time.Hour

	// Failover is from the loss of the leading manager until another one reconciles.
	Failover = 30 * time.Second

	// Rest is how long tests watch that nothing is written while nothing changes.
	Rest = 2 * time.Minute

	// UpgradeRestarts is how many pods of MCPServers a new version of the manager restarts.
	UpgradeRestarts = 0

	// OutOfMemoryV1 is what happens on nodes with cgroup v1 when one session runs out
	// of memory: the node's kernel and kubelet decide who dies.
	OutOfMemoryV1 = "only that session ends"

	// OutOfMemoryV2 is the same on nodes with cgroup v2. At once is within Death.
	OutOfMemoryV2 = "every session of the pod ends immediately, with a clear error"
)

package sessionless

import "time"

// Limits that users do not set.
const (
	// MaxCalls bounds the memory for calls in flight. It is far more than servers serve at a
	// time, and clients without sessions have no limit of their own.
	MaxCalls = 4096
	// MaxListens bounds open subscriptions. Each holds a connection, and most clients have one.
	MaxListens = 1024
	// BusyCalls in flight are more than a server with one thread answers without delay, so
	// another process takes the next ones.
	BusyCalls = 16
	// MaxProcesses bounds the memory of servers for clients without sessions: nothing in the
	// protocol needs more than one process.
	MaxProcesses = 4

	// DiscoverSilence is longer than a server takes to refuse server/discover. Some servers
	// never answer a method that they do not know.
	DiscoverSilence = 5 * time.Second
)

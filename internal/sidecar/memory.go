package sidecar

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/option"
)

const (
	// defaultBudget is for adapters without a memory limit.
	defaultBudget = 128 << 20
	// budgetShare is the part of the memory limit that clients and servers can fill. The rest
	// is for the program itself, and for what its heap has besides.
	budgetShare = 2
	// messageShare is how often the largest message fits into the budget. Large bodies leave
	// an eighth of the budget to small ones, so half of the budget is a bound to go by.
	messageShare = 2
)

// memoryLimit is not an option of package option: its field is a key of a map.
var memoryLimit = option.Option{Flag: "--memory-limit", Field: "spec.adapter.resources.limits.memory"}

// budget is how many bytes of clients and servers the adapter holds at a time. Without a
// memory limit, the largest message that may come always has room.
func (c *Config) budget() int64 {
	if c.MemoryLimit == 0 {
		return max(defaultBudget, messageShare*c.BodyBytes, messageShare*int64(c.LineBytes))
	}
	return c.MemoryLimit / budgetShare
}

// connectionBytes is more than an open connection costs whose client says nothing.
const connectionBytes = 64 << 10

// connections is how many connections of clients may be open: as many as would fit into the
// budget, which they are not counted in, and enough for the sessions.
func (c *Config) connections() int {
	return max(int(c.budget()/connectionBytes), 4*c.MaxSessions)
}

// checkMemory says which messages that may come have no room. The API server refuses an
// MCPServer for the same reason: see the rules of v1alpha1.Adapter.
func (c *Config) checkMemory() error {
	return errors.Join(c.checkRoom(option.BodyBytes, c.BodyBytes), c.checkRoom(option.LineBytes, int64(c.LineBytes)))
}

func (c *Config) checkRoom(limit option.Option, bytes int64) error {
	if messageShare*bytes <= c.budget() {
		return nil
	}
	name, memory := c.nameInError(limit), c.nameInError(memoryLimit)
	return fmt.Errorf("%s is %d, and with %s %d all messages together may have %d bytes: raise %s to %d, or lower %s",
		name, bytes, memory, c.MemoryLimit, c.budget(), memory, messageShare*budgetShare*bytes, name)
}

// nameInError is what the user calls the option. Errors about flags name them without dashes.
func (c *Config) nameInError(o option.Option) string { return strings.TrimPrefix(c.Names.Of(o), "--") }

// UseMemoryLimit has the garbage collector keep the process below the memory limit.
func (c *Config) UseMemoryLimit() {
	if c.MemoryLimit > 0 {
		debug.SetMemoryLimit(c.MemoryLimit / 10 * 9)
	}
}

// headroom is how much more may be allocated before garbage is collected than Go would
// allow a heap as small as ours. It is never touched, so it takes no memory by itself. It
// makes collections rarer: they took 2.8 % of the CPU of small calls, and take 0.8 %.
var headroom = make([]byte, 8<<20)

const (
	restInterval = time.Second / 2
	restBytes    = 128 << 10 // allocated in an interval in which nothing much happens
	wasteBytes   = 2 << 20   // worth a collection
	// A stack gives back half of what it does not need in each collection.
	collections = 3
	// Collections look at everything, so those of a trickle of calls are far apart.
	betweenCollections = 20 // intervals
)

// giveBack returns memory to the system soon after the adapter came to rest: most adapters
// have nothing to do most of the time, and there may be hundreds on a node. It also ends
// what a burst of sessions would cost for as long as they are idle.
func giveBack(ctx context.Context) {
	ticker := time.NewTicker(restInterval)
	defer ticker.Stop()
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	var last, clean uint64
	due, since := 0, betweenCollections
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		metrics.Read(sample)
		allocated := sample[0].Value.Uint64()
		if since++; since > betweenCollections && allocated-clean > wasteBytes {
			due, clean, since = collections, allocated, 0
		}
		if due > 0 && allocated-last < restBytes {
			due--
			debug.FreeOSMemory()
		}
		last = allocated
	}
}

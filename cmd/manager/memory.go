package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/config"
	"github.com/slipway-mcp/slipway/internal/memorylimit"
)

// heapPercent is how much of its memory limit the manager uses. Nearly all of its heap is its
// cache, which lives as long as the servers do. By default the collector lets a heap grow to
// twice what is alive. Below this limit it does, and then it runs more often instead.
const heapPercent = 65

// setMemoryLimit reads the memory limit of the manager's container, in bytes, from the
// environment variable that the installation sets.
func setMemoryLimit() error {
	value := os.Getenv(config.MemoryLimitVariable)
	if value == "" {
		return nil
	}
	limit, err := strconv.ParseInt(value, 10, 64)
	if err != nil || limit < 0 {
		return fmt.Errorf("read environment: %s must be a number of bytes, not %q", config.MemoryLimitVariable, value)
	}
	memorylimit.Set(limit, heapPercent)
	return nil
}

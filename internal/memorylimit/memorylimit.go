// Package memorylimit keeps a program below the memory limit of its container.
package memorylimit

import "runtime/debug"

// Set makes the garbage collector keep the program below the memory limit of its container,
// in bytes. A tenth of the limit remains for what the collector does not count, such as the
// program itself and memory of the kernel. 0 is no limit.
func Set(container int64) {
	if container > 0 {
		debug.SetMemoryLimit(container / 10 * 9)
	}
}

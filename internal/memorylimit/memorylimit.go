// Package memorylimit keeps a program below the memory limit of its container.
package memorylimit

import "runtime/debug"

// Set makes the garbage collector keep the program below a percentage of the memory limit of its
// container, which is in bytes. The rest is for what the collector does not count, such as the
// program itself and memory of the kernel. 0 is no limit.
func Set(container, percent int64) {
	if container > 0 {
		debug.SetMemoryLimit(container / 100 * percent)
	}
}

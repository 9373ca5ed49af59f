// Package priority gives the attackers of tests the lowest CPU priority.
package priority

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// nicest is the lowest priority that there is.
const nicest = 19

// Lowest gives the calling goroutine, and the programs that it starts from then on, the
// last CPU with the lowest priority. The goroutine keeps its thread, which cannot get a
// higher priority again, and takes it along when it ends.
func Lowest() error {
	runtime.LockOSThread()
	var all, last unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("ask for CPUs: %w", err)
	}
	for cpu, found := 0, 0; found < all.Count(); cpu++ {
		if all.IsSet(cpu) {
			found++
			last.Zero()
			last.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &last); err != nil {
		return fmt.Errorf("ask for one CPU: %w", err)
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nicest); err != nil {
		return fmt.Errorf("lower priority: %w", err)
	}
	return nil
}

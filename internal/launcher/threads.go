package launcher

import (
	"runtime"
	"sync"
)

// spareThreads is how many threads the launcher parks.
const spareThreads = 8

// ParkThreads makes that many OS threads while there is room. At the process limit, a Go
// program dies when it needs one more thread, and a program cannot see the limit of its
// pod. With spare threads it can still refuse a start. The runtime never ends idle threads.
func ParkThreads(count int) {
	var made, left sync.WaitGroup
	made.Add(count)
	for range count {
		left.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			made.Done()
			made.Wait() // all at once, so that none serves two
		})
	}
	left.Wait()
}

package main

import (
	"runtime"
	"sync/atomic"
)

// startLoops keeps every core busy with loops of this process, which end with it, and
// returns how to end them before.
func startLoops(perCPU int) (stop func()) {
	if perCPU == 0 {
		return func() {}
	}
	loops := perCPU * runtime.NumCPU()
	before := runtime.GOMAXPROCS(loops + runtime.NumCPU()) // so that this process still reads what the tests say
	var over atomic.Bool
	for range loops {
		go func() {
			for !over.Load() { // to be busy is the purpose
			}
		}()
	}
	return func() {
		over.Store(true)
		runtime.GOMAXPROCS(before)
	}
}

package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
)

// With each line on standard input the process says what it has allocated so far. The
// test of costs builds this into programs; they do not have it otherwise.
func init() {
	go func() {
		var m runtime.MemStats
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			runtime.ReadMemStats(&m)
			fmt.Printf("{\"objects\":%d,\"bytes\":%d}\n", m.Mallocs, m.TotalAlloc)
		}
	}()
}

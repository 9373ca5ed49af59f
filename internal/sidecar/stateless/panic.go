package stateless

import (
	"fmt"
	"runtime/debug"
)

// endOnPanic ends the adapter if the code that defers it panics. Those who call that code
// contain panics: net/http does, and so do translated sessions. But all clients share that
// code, and a lock that it still holds would have them all hang for ever.
func endOnPanic() {
	p := recover()
	if p == nil {
		return
	}
	text := fmt.Sprintf("%v\n%s", p, debug.Stack())
	go panic(text) // which no caller can recover from
	select {}
}

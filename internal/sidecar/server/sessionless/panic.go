package sessionless

import (
	"fmt"
	"runtime/debug"
)

// endOnPanic ends the adapter if the function that defers it panics. Callers of this package
// contain panics: net/http does, and so do translated sessions. But all clients share the
// locks of this package, and all clients would hang on a lock that a panic leaves locked.
func endOnPanic() {
	p := recover()
	if p == nil {
		return
	}
	text := fmt.Sprintf("%v\n%s", p, debug.Stack())
	go panic(text) // which no caller can recover from
	select {}
}

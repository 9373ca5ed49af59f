package launcher

import (
	"sync"
	"testing"
)

// Whoever asks before the end and whoever asks after it is told, once.
func TestExitEventTellsEverybodyOnce(t *testing.T) {
	e := newExitEvent()
	var told sync.WaitGroup
	told.Add(2) // one more would panic
	e.then(told.Done)
	e.come(Exit{Code: 3})
	e.come(Exit{Code: 4})
	e.then(told.Done)
	told.Wait()
	<-e.done
	if e.exit.Code != 3 {
		t.Errorf("exit code %d, want that of the first end", e.exit.Code)
	}
}

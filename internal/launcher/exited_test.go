package launcher

import (
	"sync"
	"testing"
)

// Each listener gets the event once, whether it asks before or after the process ends.
func TestExitEventReachesEachListenerOnce(t *testing.T) {
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

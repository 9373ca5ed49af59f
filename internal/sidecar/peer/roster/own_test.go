package roster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// What a list says about the end of a pod is true until the next list, with or without its lease.
func TestEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		check := func(want Ending) (another <-chan struct{}) {
			t.Helper()
			another = r.Next()
			if said := r.Ending(first); said != want {
				t.Errorf("got %+v, want %+v", said, want)
			}
			select {
			case <-another:
				t.Error("there is another list already")
			default:
			}
			return another
		}
		before := []<-chan struct{}{check(Ending{}), check(Ending{})}
		take(t, r, list(t, 1, pod(second), adapterapi.PeerPod{UID: first.String(), DrainSeconds: 7, Closing: true}))
		for _, another := range before {
			<-another
		}
		check(Ending{Seconds: 7, Closing: true})
		time.Sleep(10 * lease)
		another := check(Ending{Seconds: 7, Closing: true})
		take(t, r, list(t, 2, pod(second)))
		<-another
		another = check(Ending{})
		if err := r.Take(list(t, 1, pod(first))); err == nil {
			t.Error("an older list was taken")
		}
		select {
		case <-another:
			t.Error("a list that is not taken is told of")
		default:
		}
	})
}

package peer

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
)

const groupListen = `{"jsonrpc":"2.0","id":"a","method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`

// listen has a client of the group listen at the adapter. The channel has the status of the answer once that is over.
func (k *ranked) listen(t *testing.T) <-chan int {
	t.Helper()
	over := make(chan int, 1)
	go func() { over <- k.post(t, groupListen).Code }()
	synctest.Wait()
	return over
}

// take puts another list into effect, with these of the pods.
func (k *ranked) take(pods ...roster.Candidate) {
	k.mu.Lock()
	k.ready = &roster.Ready{Pods: pods}
	former := k.next
	k.next = make(chan struct{})
	k.mu.Unlock()
	close(former)
	synctest.Wait()
}

// A subscription ends when the requests of its group would go to another pod, and not before: also without another list,
// when a home can be reached again.
func TestListensMoveWithTheirGroup(t *testing.T) {
	for name, test := range map[string]struct {
		self int
		move func(k *ranked, pods []roster.Candidate, stays func())
	}{
		"this pod is no home any more": {0, func(k *ranked, pods []roster.Candidate, stays func()) {
			k.take(pods[0], pods[2])
			stays()
			k.fail(1, nil, errNone)
			k.take(pods[1:]...)
		}},
		"there was no list": {3, func(k *ranked, pods []roster.Candidate, stays func()) {
			k.take(pods[3])
			stays()
			k.fail(2, nil, errNone)
			k.take(pods[2:]...)
		}},
		"the home before cannot be reached for a while": {1, func(k *ranked, pods []roster.Candidate, stays func()) {
			k.fail(0, syscall.EHOSTUNREACH, nil)
			k.take(pods...)
			stays()
			k.fail(0, nil, errNone)
			time.Sleep(homeCheck + failedLapse)
			synctest.Wait()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := newRanked(t, test.self)
				pods := k.ready.Pods
				k.fail(0, syscall.ECONNREFUSED, nil)
				if name == "there was no list" {
					k.ready = nil
				}
				over := k.listen(t)
				stays := func() {
					t.Helper()
					time.Sleep(10 * homeCheck)
					synctest.Wait()
					if len(over) > 0 {
						t.Error("the subscription is over")
					}
				}
				stays()
				test.move(k, pods, stays)
				if len(over) == 0 {
					t.Fatal("the subscription goes on")
				}
				if code := <-over; code != statusMoved {
					t.Errorf("got %d", code)
				}
			})
		})
	}
}

// A subscription that goes on with a state of this pod stays with it.
func TestListenWithAState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newRanked(t, 3)
		k.state = &k.ready.Pods[3].Owner
		k.fail(0, nil, errNone)
		over := k.listen(t)
		time.Sleep(2 * homeCheck)
		synctest.Wait()
		if len(over) > 0 {
			t.Errorf("got %d", <-over)
		}
	})
}

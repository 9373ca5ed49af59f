package news

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

const all = `"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true`

// twoPods are a pod with clients, and one with processes.
func twoPods(t *testing.T, runs bool) (clients, processes *pod, list *listed) {
	t.Helper()
	list = &listed{next: make(chan struct{})}
	clients, processes = startPod(t, 1, list, tells), startPod(t, 2, list, tells)
	processes.runs = runs
	list.set(clients.Owner, processes.Owner)
	return clients, processes, list
}

// observer waits for the only stream of a pod to another one.
func (p *pod) observer(t *testing.T, wants int) subscription.Observer {
	t.Helper()
	eventually(t, "a stream that asks for so much, and no other", func() bool {
		all := p.observers()
		return len(all) == 1 && len(p.observed[all[0]]) == wants
	})
	return p.observers()[0]
}

// A change at one pod reaches the clients of another one. A stream that follows another has no gap: only what it alone is
// about may have changed before it.
func TestChanges(t *testing.T) {
	clients, processes, _ := twoPods(t, true)
	clients.want("a://1")
	clients.hears(t, ` missed {`+all+`,"resourceSubscriptions":["a://1"]}`)
	first := processes.observer(t, 1)
	first.Changed(0, subscription.MethodUpdated, "a://1/2")
	clients.hears(t, ` changed {"resourceSubscriptions":["a://1/2"]}`)
	first.Changed(0, subscription.MethodToolsChanged, "")
	clients.hears(t, ` changed {"toolsListChanged":true}`)
	clients.set(subscription.Want{Filter: subscription.Filter{URIs: []string{"a://1", "a://2"}}}, subscription.Want{Principal: "user x"})
	clients.hearsBoth(t, ` missed {"resourceSubscriptions":["a://2"]}`, `user x missed {`+all+`}`)
	second := processes.observer(t, 2)
	if first == second {
		t.Error("the stream is the same")
	}
	second.Changed(1, subscription.MethodToolsChanged, "")
	clients.hears(t, `user x changed {"toolsListChanged":true}`)
	second.Missed(0)
	clients.hears(t, ` missed {`+all+`,"resourceSubscriptions":["a://1","a://2"]}`)
}

func (c *crowd) hearsBoth(t *testing.T, one, other string) {
	t.Helper()
	if got := <-c.heard; got == other {
		other = one
	} else if got != one {
		t.Errorf("clients hear: %s, want %s", got, one)
	}
	c.hears(t, other)
}

// Where no process ran, nothing was missed. When a stream is lost and found again, everything may have been.
func TestLost(t *testing.T) {
	clients, processes, list := twoPods(t, false)
	clients.want("a://1")
	processes.observer(t, 1).Changed(0, subscription.MethodUpdated, "a://1")
	clients.hears(t, ` changed {"resourceSubscriptions":["a://1"]}`)
	processes.observer(t, 1).Ended()
	clients.hears(t, ` missed {`+all+`,"resourceSubscriptions":["a://1"]}`)
	processes.observer(t, 1)
	// A pod that is not in the list any more is not asked.
	list.set(clients.Owner)
	eventually(t, "no stream", func() bool { return clients.news.Streams() == 0 && len(processes.observers()) == 0 })
}

// A stream is lost while the next one, which asks for more, is on its way. Nothing tells of changes until that has begun.
func TestLostWhileReplaced(t *testing.T) {
	clients, processes, _ := twoPods(t, true)
	clients.want("a://1")
	clients.hears(t, ` missed {`+all+`,"resourceSubscriptions":["a://1"]}`)
	first := processes.observer(t, 1)
	settle, settling := make(chan struct{}), make(chan struct{})
	processes.settle(func() {
		close(settling)
		<-settle
	})
	clients.want("a://1", "a://2")
	<-settling
	first.Ended()
	eventually(t, "the first stream is over", func() bool { return clients.news.Streams() == 0 })
	close(settle)
	clients.hears(t, ` missed {`+all+`,"resourceSubscriptions":["a://1","a://2"]}`)
}

// The last news of a stream reach clients, although the next one has begun.
func TestLastNewsOfAStream(t *testing.T) {
	clients, processes, _ := twoPods(t, true)
	uris := []string{"a://0"}
	clients.want(uris...)
	clients.hears(t, ` missed {`+all+`,"resourceSubscriptions":["a://0"]}`)
	for i := range 20 {
		last := processes.observerOf(t, len(uris))
		late := fmt.Sprintf("a://0/%d", i)
		processes.settle(func() { last.Changed(0, subscription.MethodUpdated, late) })
		another := fmt.Sprintf("b://%02d", i)
		uris = append(uris, another)
		clients.want(uris...)
		clients.hearsBoth(t, ` changed {"resourceSubscriptions":["`+late+`"]}`, ` missed {"resourceSubscriptions":["`+another+`"]}`)
	}
}

// The last news of a stream may be on their way for longer than the next one takes to begin. Clients hear of them when they
// come, or that everything may have changed if they do not.
func TestLateNewsOfAStream(t *testing.T) {
	for name, test := range map[string]struct {
		comes func(*stalling)
		want  string
	}{
		"they come":        {func(c *stalling) { c.gate.Unlock() }, ` changed {"resourceSubscriptions":["a://1/2"]}`},
		"they do not come": {func(c *stalling) { _ = c.Close(); c.gate.Unlock() }, ` missed {` + all + `,"resourceSubscriptions":["a://1"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			clients, processes, _ := twoPods(t, true)
			clients.want("a://1")
			clients.hears(t, ` missed {`+all+`,"resourceSubscriptions":["a://1"]}`)
			first := processes.observer(t, 1)
			stalled := clients.dials.stallAll()
			first.Changed(0, subscription.MethodUpdated, "a://1/2")
			clients.want("a://1", "a://2")
			clients.hears(t, ` missed {"resourceSubscriptions":["a://2"]}`)
			eventually(t, "the pod has ended the first stream", func() bool { return len(processes.observers()) == 1 })
			for _, c := range stalled {
				test.comes(c)
			}
			clients.hears(t, test.want)
		})
	}
}

// The last news of a pod may be lost with it. Clients hear that everything may have changed, unless no process ran there.
func TestPodIsGone(t *testing.T) {
	for name, end := range map[string]func(subscription.Observer){
		"while it tells of changes": func(subscription.Observer) {},
		"after it has drained":      subscription.Observer.Ended,
	} {
		t.Run(name, func(t *testing.T) {
			clients, processes, list := twoPods(t, false)
			clients.set(subscription.Want{Filter: subscription.Filter{URIs: []string{"a://1"}}}, subscription.Want{Principal: "user x"})
			observer := processes.observer(t, 2)
			observer.Changed(0, subscription.MethodToolsChanged, "")
			clients.hears(t, ` changed {"toolsListChanged":true}`)
			processes.leave()
			end(observer)
			list.set(clients.Owner)
			clients.hears(t, ` missed {`+all+`,"resourceSubscriptions":["a://1"]}`)
			eventually(t, "no stream", func() bool { return clients.news.Streams() == 0 && len(processes.observers()) == 0 })
			another := startPod(t, 3, list, tells)
			list.set(clients.Owner, another.Owner)
			another.observer(t, 2).Changed(1, subscription.MethodToolsChanged, "")
			clients.hears(t, `user x changed {"toolsListChanged":true}`)
		})
	}
}

// observerOf waits for the observer of so many resources.
func (p *pod) observerOf(t *testing.T, uris int) (found subscription.Observer) {
	t.Helper()
	eventually(t, "an observer", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for o, wants := range p.observed {
			if len(wants[0].URIs) == uris {
				found = o
			}
		}
		return found != nil
	})
	return found
}

// A pod of an older version is asked seldom, and one that is about to end as any that cannot be reached.
func TestPodsWithoutNews(t *testing.T) {
	list := &listed{next: make(chan struct{})}
	asked := make(chan string, 16)
	older := startPod(t, 3, list, func(*News) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- r.URL.Path
			answerPing(w, r)
		})
	})
	clients, processes := startPod(t, 1, list, tells), startPod(t, 2, list, tells)
	processes.leave()
	list.set(clients.Owner, processes.Owner, older.Owner)
	clients.want("a://1")
	if path := <-asked; path != Path {
		t.Errorf("asked for %s", path)
	}
	eventually(t, "two attempts at the pod that ends", func() bool { return clients.relay.Forwards(1) >= 3 })
	processes.mu.Lock()
	processes.leaving = false
	processes.mu.Unlock()
	processes.observer(t, 1)
	for len(asked) > 0 {
		if path := <-asked; path == Path {
			t.Error("the older pod is asked again")
		}
	}
}

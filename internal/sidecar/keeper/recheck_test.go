package keeper

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// seldom is for tests that last for hours.
func seldom(o *Options) { o.PingInterval = time.Minute }

// A server that cannot initialize for a while has sessions as soon as it can, and serves clients without
// sessions until then.
func TestKeeperRechecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{answers: map[string]string{"initialize": "-32000"}}
		w := watch(t, g, seldom)
		w.after(t, time.Hour, starting, "ready, stateless true")
		asked := len(g.firsts())
		if asked < 12 || asked > 24 {
			t.Errorf("in an hour %d servers were started", asked)
		}
		g.set(nil)
		w.after(t, rechecks.Last, starting, "ready, stateless true", "ready, stateless false")
		if got := len(g.firsts()); got != asked+1 {
			t.Errorf("%d servers were started for a session, want one", got-asked)
		}
		w.after(t, time.Hour, starting, "ready, stateless true", "ready, stateless false")
		g.kill()
		w.after(t, time.Second, starting, "ready, stateless true", "ready, stateless false", "ready true, Exited: exit code 3", "ready, stateless false")
	})
}

// Once a server's answer proves that it has no sessions, the keeper stops the rechecks.
func TestKeeperIsCertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{answers: map[string]string{"initialize": "-32000"}}
		w := watch(t, g, seldom)
		w.after(t, time.Second, starting, "ready, stateless true")
		g.set(map[string]string{"initialize": "-32601"})
		time.Sleep(time.Hour)
		g.kill()
		w.after(t, time.Hour, starting, "ready, stateless true", "ready true, Exited: exit code 3", "ready, stateless true")
		expectFirsts(t, g, "initialize", "server/discover", "initialize", "server/discover")
	})
}

// The server ends, or the keeper does, while another one is asked and does not answer.
func TestKeeperDoubtsNoLongerThanItKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{answers: map[string]string{"initialize": "-32000"}}
		w := watch(t, g, nil)
		w.after(t, time.Second, starting, "ready, stateless true")
		g.set(map[string]string{"initialize": ignored})
		time.Sleep(rechecks.First)
		synctest.Wait()
		if !slices.Equal(g.firsts(), []string{"initialize", "server/discover", "initialize"}) {
			t.Fatalf("servers were asked first for %q", g.firsts())
		}
		g.set(nil)
		g.kill()
		w.after(t, time.Second, starting, "ready, stateless true", "ready true, Exited: exit code 3", "ready, stateless false")
	})
}

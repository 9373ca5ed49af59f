package sidecar

import (
	"context"
	"flag"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A simulation runs real adapters, with the relay, the handshakes and all the rest, in a bubble with a clock of its own. The network, the
// servers, the kubelet and the manager are made for it. A schedule of faults follows from a seed. The order of goroutines is the
// runtime's, so the same seed need not fail again: what failed prints its schedule.

var (
	simSeeds = flag.Int("seeds", simDefaultSeeds, "how many simulations of pods to run")
	simFirst = flag.Uint64("first-seed", 1, "the seed of the first one")
)

const (
	simFaultsFor = 60 * time.Second
	// simWorksWithin is when every client with a session that lives, or with none, works again after the last fault.
	simWorksWithin = 5 * time.Second
	// simKnowsWithin is when a client has learned that its session is over, and has another one. An adapter that has
	// never had the pod of that session in a list looks for 15 s. It answers 503 until then, so that the client goes on to other
	// adapters, which begin to look when they are asked.
	simKnowsWithin = time.Minute
)

func TestSimulation(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	statuses := map[int]int{}
	t.Run("seeds", func(t *testing.T) {
		for i := range *simSeeds {
			seed := *simFirst + uint64(i)
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					found := simulate(t, seed)
					mu.Lock()
					defer mu.Unlock()
					for status, n := range found {
						statuses[status] += n
					}
				})
			})
		}
	})
	t.Logf("answers by status, 0 for connections that broke: %v", statuses)
	for _, status := range []int{http.StatusOK, http.StatusNotFound, http.StatusBadGateway, http.StatusServiceUnavailable} {
		if *simSeeds >= 20 && statuses[status] == 0 {
			t.Errorf("no request was answered %d, so the simulation tests too little", status)
		}
	}
}

// simulate runs one schedule, and returns how many answers there were of each status.
func simulate(t *testing.T, seed uint64) map[int]int {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	over, end := context.WithCancel(t.Context())
	c := newSimCluster(over, t, random, 3+random.IntN(3))
	clients := make([]*simClient, 4+random.IntN(5))
	for i := range clients {
		clients[i] = newSimClient(c, i, seed)
	}
	using, stop := context.WithCancel(over)
	var running sync.WaitGroup
	for _, k := range clients {
		running.Go(func() { k.use(using) })
	}
	f := newSimFaults(c)
	for time.Since(c.began) < simFaultsFor {
		time.Sleep(time.Duration(random.Int64N(int64(5 * time.Second))))
		f.next()
	}
	stop()
	running.Wait()
	f.repair()
	c.note("all is repaired")
	for _, k := range clients {
		running.Go(func() { k.mustWork(over) })
	}
	running.Wait()
	c.ledger.mu.Lock()
	for call, times := range c.ledger.executed {
		if times != 1 {
			t.Errorf("%s ran %d times", call, times)
		}
	}
	c.ledger.mu.Unlock()
	answers := map[int]int{}
	for _, k := range clients {
		k.http.CloseIdleConnections()
		for status, n := range k.answers {
			answers[status] += n
		}
	}
	end()
	c.close()
	if t.Failed() {
		t.Logf("go test -run 'TestSimulation/seeds/%d$' ./internal/sidecar -seeds 1 -first-seed %d; the schedule:\n%s", seed, seed, c.schedule())
	}
	return answers
}

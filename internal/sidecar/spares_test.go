package sidecar

import (
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/test/hang"
)

// startSlowly starts replicas with so many spares each, of a server that takes half a second to start.
func startSlowly(t *testing.T, spares ...int) []*replica {
	t.Helper()
	replicas := startReplicas(t, len(spares), func(c *config.Config) {
		c.Warm, c.Era = spares[0], sessionless.Legacy
		spares = spares[1:]
	}, "sh", "-c", "sleep 0.5; exec "+echoServer)
	gomega.NewWithT(t).Eventually(func() time.Duration { return replicas[0].backend.Starts().Time }).
		WithTimeout(hang.Guard).Should(gomega.BeNumerically(">", 400*time.Millisecond)) // the keeper's process has answered
	return replicas
}

// hasSpares waits until a replica has so many spares.
func (r *replica) hasSpares(t *testing.T, want int) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() int { return r.backend.Starts().Spares }).WithTimeout(hang.Guard).Should(gomega.Equal(want))
}

// A session begins at a pod that has a process ready for it, rather than wait for the start of a slow one where the client
// is connected. The next one does not: that pod has said that its spare is taken.
func TestSpareElsewhere(t *testing.T) {
	t.Parallel()
	replicas := startSlowly(t, 0, 1)
	entry, ready := replicas[0], replicas[1]
	ready.hasSpares(t, 1)
	enlist(t, 1, replicas, 2, func(i int, pod *adapterapi.PeerPod) { pod.Spares = int64(replicas[i].backend.Starts().Spares) })
	first := at(t, entry)
	first.open(t)
	entry.wantPlaced(t, 0, 1, 0)
	if here, there := entry.sessions(), ready.sessions(); here != 0 || there != 1 {
		t.Errorf("%d sessions here and %d at the pod with a spare", here, there)
	}
	second := at(t, entry)
	second.open(t)
	entry.wantPlaced(t, 1, 1, 0)
	for _, c := range []*client{first, second} {
		c.must(t, 200)
	}
}

// A cordoned pod ends its spares. They come back with the end of the cordon.
func TestCordonedPodKeepsNoSpares(t *testing.T) {
	t.Parallel()
	replicas := startSlowly(t, 0, 2)
	cordoned := replicas[1]
	cordoned.hasSpares(t, 2)
	for generation, cordon := range []bool{true, false, true, false} {
		enlist(t, int64(generation+1), replicas, 2, func(i int, pod *adapterapi.PeerPod) { pod.Cordoned = cordon && i == 1 })
		if cordon {
			cordoned.hasSpares(t, 0)
		} else {
			cordoned.hasSpares(t, 2)
		}
	}
}

// So does a pod that drains, also if it was cordoned before and is not any more.
func TestDrainingPodKeepsNoSpares(t *testing.T) {
	t.Parallel()
	replicas := startSlowly(t, 0, 2)
	drains := replicas[1]
	c := at(t, drains)
	c.open(t)
	drains.hasSpares(t, 2)
	enlist(t, 1, replicas, 2, func(i int, pod *adapterapi.PeerPod) { pod.Cordoned = i == 1 })
	drains.hasSpares(t, 0)
	drains.Drain()
	enlist(t, 2, replicas, 2, func(i int, pod *adapterapi.PeerPod) { pod.Terminating = i == 1 })
	other := at(t, replicas[0]) // its session has a process of the other pod
	other.open(t)
	c.must(t, 200)
	if got := drains.backend.Starts().Spares; got != 0 {
		t.Errorf("%d spares", got)
	}
}

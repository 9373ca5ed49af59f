package sidecar

import (
	"math/rand/v2"
	"sync"
	"time"
)

// simFaults are the faults of a schedule.
type simFaults struct {
	c       *simCluster
	random  *rand.Rand
	mended  chan struct{} // closed when everything ends
	running sync.WaitGroup
}

func newSimFaults(c *simCluster) *simFaults {
	return &simFaults{c: c, random: c.random, mended: make(chan struct{})}
}

// during ends what has begun after a while, or with the faults.
func (f *simFaults) during(d time.Duration, end func()) {
	f.running.Go(func() {
		select {
		case <-time.After(d):
		case <-f.mended:
		}
		end()
	})
}

// between is a random time.
func (f *simFaults) between(least, most time.Duration) time.Duration {
	return least + time.Duration(f.random.Int64N(int64(most-least)))
}

// pick returns a pod that runs and stays, or nil if there are too few.
func (f *simFaults) pick() *simPod {
	var there []*simPod
	for _, p := range f.c.snapshot() {
		p.mu.Lock()
		if p.adapter != nil && !p.terminating && !p.gone {
			there = append(there, p)
		}
		p.mu.Unlock()
	}
	if len(there) < 2 {
		return nil
	}
	return there[f.random.IntN(len(there))]
}

// next has one thing go wrong.
func (f *simFaults) next() {
	p := f.pick()
	if p == nil {
		return
	}
	kinds := []func(*simPod){f.drain, f.drain, f.kill, f.kill, f.crash, f.crash, f.force, f.lose, f.lose, f.cut, f.cut, f.cut, f.unmanaged, f.noManager, f.lateLists, f.slow, f.stranger}
	kinds[f.random.IntN(len(kinds))](p)
}

func (f *simFaults) drain(p *simPod) {
	f.c.note("%s is deleted", p.host.name)
	f.running.Go(func() { f.c.drain(p) })
	f.replace()
}

// replace starts another pod soon.
func (f *simFaults) replace() {
	f.during(f.between(500*time.Millisecond, 2*time.Second), f.c.addPod)
}

func (f *simFaults) kill(p *simPod) {
	f.c.note("the adapter of %s is killed", p.host.name)
	f.running.Go(func() { f.c.kill(p) })
	f.during(f.between(time.Second, 3*time.Second), func() {
		p.mu.Lock()
		down := p.adapter == nil && !p.gone && !p.terminating
		p.mu.Unlock()
		if down {
			f.c.start(p)
			f.c.note("the adapter of %s starts again", p.host.name)
			f.c.push()
		}
	})
}

// crash ends the server's container. The kubelet waits before it starts it again.
func (f *simFaults) crash(p *simPod) {
	f.c.note("the server of %s crashes", p.host.name)
	p.mu.Lock()
	container := p.container
	p.mu.Unlock()
	container.setAway(true)
	f.during(f.between(time.Second, 40*time.Second), func() {
		f.c.note("the server of %s starts again", p.host.name)
		container.setAway(false)
	})
}

func (f *simFaults) force(p *simPod) {
	f.c.note("%s is deleted by force", p.host.name)
	f.c.remove(p)
	f.during(f.between(0, 3*time.Second), func() { f.c.vanish(p) })
	f.replace()
}

func (f *simFaults) lose(p *simPod) {
	f.c.note("the node of %s is lost", p.host.name)
	f.c.net.setDead(p.host, true)
	back := f.random.IntN(2) == 0
	f.during(f.between(time.Second, 40*time.Second), func() {
		p.mu.Lock()
		gone := p.gone
		p.mu.Unlock()
		switch {
		case gone:
		case back:
			f.c.net.setDead(p.host, false)
			f.c.note("the node of %s is back", p.host.name)
		default:
			f.c.note("%s is deleted with its node", p.host.name)
			f.c.remove(p)
			f.c.vanish(p)
			f.c.addPod()
		}
	})
}

func (f *simFaults) cut(p *simPod) {
	other := f.pick()
	if other == nil || other == p {
		return
	}
	f.c.note("%s and %s are cut off from each other", p.host.name, other.host.name)
	f.c.net.setCut(p.host, other.host, true)
	f.during(f.between(time.Second, 30*time.Second), func() {
		f.c.note("%s and %s are connected again", p.host.name, other.host.name)
		f.c.net.setCut(p.host, other.host, false)
	})
}

func (f *simFaults) unmanaged(p *simPod) {
	f.c.note("the manager is cut off from %s", p.host.name)
	f.c.net.setCut(f.c.manager, p.host, true)
	f.during(f.between(time.Second, 40*time.Second), func() { f.c.net.setCut(f.c.manager, p.host, false) })
}

func (f *simFaults) noManager(*simPod) {
	f.c.note("the manager stops")
	f.c.setManager(true)
	f.during(f.between(5*time.Second, 40*time.Second), func() {
		f.c.note("the manager is there")
		f.c.setManager(false)
	})
}

func (c *simCluster) setManager(stopped bool) {
	c.mu.Lock()
	c.stopped = stopped
	c.mu.Unlock()
	c.push()
}

func (f *simFaults) lateLists(*simPod) {
	f.c.note("lists are late")
	f.c.setDeaf(5 * time.Second)
	f.during(f.between(5*time.Second, 15*time.Second), func() { f.c.setDeaf(0) })
}

func (c *simCluster) setDeaf(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = d
}

func (f *simFaults) slow(*simPod) {
	d := f.between(10*time.Millisecond, 150*time.Millisecond)
	f.c.note("the network is slow: %s", d)
	f.c.net.setSlow(d)
	f.during(f.between(time.Second, 5*time.Second), func() { f.c.net.setSlow(0) })
}

// stranger has a foreign program at the address of a pod that is gone.
func (f *simFaults) stranger(*simPod) {
	f.c.mu.Lock()
	if len(f.c.free) == 0 {
		f.c.mu.Unlock()
		return
	}
	address := f.c.free[0]
	f.c.free = f.c.free[1:]
	f.c.mu.Unlock()
	f.c.note("a stranger has %s", address)
	f.c.stranger(address)
}

// repair ends all faults, and waits until that is so.
func (f *simFaults) repair() {
	close(f.mended)
	f.running.Wait()
	f.c.push()
}

package peer

import (
	"cmp"
	"math"
	"slices"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
)

const (
	// mostPeers bounds the pods that are asked to take one session.
	mostPeers = 8
	// nearEnough is how much more of its limit a pod of the same zone may use than a pod of another zone, and still
	// be asked first.
	nearEnough = 0.1
	// here stands for this pod among the places for a session.
	here = -1
)

// standing is what decides whether a session begins at this pod.
type standing struct {
	closed  bool   // it opens no sessions any more
	avoided bool   // sessions should begin at other pods: it is cordoned, or goes away
	newest  bool   // no list names a newer template
	free    bool   // it has a free slot
	broken  bool   // a session here has no server
	slow    bool   // a session here waits for a process to start, which takes long
	zone    string // empty if it is not known
}

// other is another pod at which a session may begin.
type other struct {
	roster.Candidate
	load Load
	sent int64 // sessions that are on their way there
}

// share is the part of its limit that the pod has taken, with the sessions on their way. A pod whose limit is not known
// gets one session, and then says what it is.
func (o *other) share() float64 {
	return float64(o.load.Sessions+o.sent) / float64(max(o.load.Limit, 1))
}

// hasSpare reports whether a process waits there for one more session.
func (o *other) hasSpare() bool { return o.load.Spares > o.sent }

// rank orders pods by where sessions should begin. Pods of a higher rank are for when those of a lower one are full.
type rank int

const (
	wanted  rank = iota // of the newest template, and verified
	usable              // ready
	avoided             // cordoned, or going away
	broken              // without a server: other pods of that kind are not ready, so only this one has this rank
	ranks
)

func (s *standing) rank() rank {
	switch {
	case s.broken:
		return broken
	case s.avoided:
		return avoided
	case s.newest:
		return wanted // it is ready, and the session pays no hop
	default:
		return usable
	}
}

func (o *other) rank() rank {
	switch {
	case o.Cordoned:
		return avoided
	case o.Newest && o.Verified:
		return wanted
	default:
		return usable
	}
}

// place returns where a session may begin, in the order in which to try: indexes of others, and here.
//
// This pod comes before others of its rank, because a session that begins where its connection ends pays no hop. But a
// hop costs less than the start of a slow process, so those that have a spare come before a pod that has none. Of two
// pods that it chooses at random, the one with the smaller load comes first. That needs no fresh figures: if all
// entries asked the pod with the least load, they would all ask the same one. Pods that are known to be full come last,
// because sessions end without this pod learning of it.
func place(self *standing, others []other, random func(n int) int) []int {
	p := placement{self, others, random}
	var order []int
	for _, full := range []bool{false, true} {
		for r := range ranks {
			order = append(order, p.of(r, full)...)
		}
	}
	return upTo(mostPeers, order)
}

// upTo leaves out all but the first peers.
func upTo(most int, order []int) []int {
	peers := 0
	return slices.DeleteFunc(order, func(i int) bool {
		if i != here {
			peers++
		}
		return peers > most && i != here
	})
}

type placement struct {
	self   *standing
	others []other
	random func(n int) int
}

// of returns the places of a rank.
func (p *placement) of(r rank, full bool) []int {
	var peers []int
	for i := range p.others {
		if o := &p.others[i]; o.rank() == r && o.load.isFull() == full {
			peers = append(peers, i)
		}
	}
	if full || !p.self.free || p.self.closed || p.self.rank() != r {
		return p.spread(peers)
	}
	var first []int
	if p.self.slow {
		for _, i := range peers {
			if p.others[i].hasSpare() {
				first = append(first, i)
			}
		}
		peers = slices.DeleteFunc(peers, func(i int) bool { return p.others[i].hasSpare() })
	}
	return slices.Concat(p.spread(first), []int{here}, p.spread(peers))
}

// spread puts two pods that it chooses at random before all others, and orders these by load.
func (p *placement) spread(pods []int) []int {
	if len(pods) < 2 {
		return pods
	}
	for at := range 2 {
		chosen := at + p.random(len(pods)-at)
		pods[at], pods[chosen] = pods[chosen], pods[at]
	}
	if p.isBetter(&p.others[pods[1]], &p.others[pods[0]]) {
		pods[0], pods[1] = pods[1], pods[0]
	}
	slices.SortStableFunc(pods[2:], func(a, b int) int {
		return cmp.Compare(p.others[a].share(), p.others[b].share())
	})
	return pods
}

// isBetter reports whether to ask a before b.
func (p *placement) isBetter(a, b *other) bool {
	ours, theirs := a.share(), b.share()
	if near := p.self.zone; near != "" && (a.Zone == near) != (b.Zone == near) && math.Abs(ours-theirs) < nearEnough {
		return a.Zone == near
	}
	return ours < theirs
}

package prober

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// goneFor is how long lists name a pod that is gone. By then a pod that replaces it has got a list, also if its image
	// had to be pulled; and an adapter remembers what a list has told.
	goneFor = 30 * time.Minute
	// mostGone bounds the pods of a server that are named as gone, which takes 5 KiB of each list. They are the last ones.
	mostGone = 128
)

// departure is a pod that is gone.
type departure struct {
	uid types.UID
	at  time.Time
}

// departures are the pods of a server that are gone, oldest first. The manager keeps them in memory: one that takes over
// knows of none, and then a new pod finds out by itself, as if there was no list.
type departures []departure

func (d *departures) add(uid types.UID, now time.Time) {
	d.remove(uid)
	*d = append(*d, departure{uid, now})
	if excess := len(*d) - mostGone; excess > 0 {
		*d = slices.Delete(*d, 0, excess)
	}
}

// remove is for a pod that is there after all: the manager could not ask it for a while.
func (d *departures) remove(uid types.UID) {
	*d = slices.DeleteFunc(*d, func(one departure) bool { return one.uid == uid })
}

// forget forgets those that have been gone for long.
func (d *departures) forget(now time.Time) {
	*d = slices.DeleteFunc(*d, func(one departure) bool { return now.Sub(one.at) >= goneFor })
}

func (d *departures) uids() []string {
	uids := make([]string, len(*d))
	for i, one := range *d {
		uids[i] = string(one.uid)
	}
	return uids
}

// keepGone remembers which pods of a server are gone that has none for now: the next one is to know of them.
func (p *Prober) keepGone(s *server) {
	p.gone[s.name] = s.gone
	time.AfterFunc(goneFor, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		left := p.gone[s.name]
		if left.forget(time.Now()); len(left) == 0 {
			delete(p.gone, s.name)
		} else {
			p.gone[s.name] = left
		}
	})
}

// takeGone gives back what keepGone has kept.
func (p *Prober) takeGone(server types.NamespacedName) departures {
	left := p.gone[server]
	delete(p.gone, server)
	return left
}

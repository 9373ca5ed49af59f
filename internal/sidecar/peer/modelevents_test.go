package peer

import (
	"fmt"
	"time"
)

// mostFaults bounds the faults of one run of events, so that more of them are about what follows.
const mostFaults = 4

// events calls a function with each event that may happen now.
func (m *model) events(w *world, may func(name string, happen func(*world))) {
	m.faultEvents(w, func(name string, happen func(*world)) {
		may(name, func(w *world) {
			w.faults++
			happen(w)
		})
	})
	m.repairEvents(w, may)
	m.listEvents(w, may)
	m.requestEvents(w, may)
}

// end ends the session of a pod, if it has one.
func (w *world) end(pod int) {
	if pod < modelSessions {
		w.alive[pod] = false
	}
}

// stop ends the adapter of a pod, with what it remembers and the requests that are there.
func (w *world) stop(pod int, to life) {
	w.pods[pod].life = to
	w.end(pod)
	w.entry[pod] = modelEntry{notes: newNotes()}
	for s := range w.flight {
		if w.flight[s].entry == pod {
			w.flight[s].entry = -1
		}
	}
}

// faultEvents are what goes wrong, and what the cluster does.
func (m *model) faultEvents(w *world, may func(string, func(*world))) {
	if w.faults >= mostFaults {
		return
	}
	for i, p := range w.pods {
		on := func(format string) string { return fmt.Sprintf(format, i) }
		if w.isUp(i) {
			may(on("the adapter of pod %d is killed"), func(w *world) { w.stop(i, killed) })
		}
		if !w.cut[i] {
			may(on("the pods other than %d are cut off from each other"), func(w *world) { w.cut[i] = true })
		}
		if i >= modelSessions { // the other events are about owners
			continue
		}
		if p.life == serving {
			may(on("pod %d is deleted, and drains"), func(w *world) { w.pods[i].life = draining })
			may(on("the node of pod %d is lost"), func(w *world) { w.pods[i].life = lost })
		}
		if p.life != gone {
			may(on("pod %d is deleted by force"), func(w *world) {
				w.stop(i, gone)
				w.publish()
			})
		}
		if !p.stuck && w.isUp(i) {
			may(on("pod %d takes connections, and says nothing"), func(w *world) { w.pods[i].stuck = true })
		}
		if !w.blind[i] && p.life != gone {
			may(on("the manager cannot reach pod %d"), func(w *world) {
				w.blind[i] = true
				w.publish()
			})
		}
		if !w.forgot[i] && p.life != gone {
			may(on("a new leader does not know pod %d"), func(w *world) {
				w.forgot[i] = true
				w.publish()
			})
		}
		if p.life == gone && p.tenant == vacant {
			may(on("another pod gets the address of pod %d"), func(w *world) { w.pods[i].tenant = sibling })
			may(on("a foreign program gets the address of pod %d"), func(w *world) { w.pods[i].tenant = foreigner })
		}
	}
}

// repairEvents end what went wrong, or go on with what has begun.
func (m *model) repairEvents(w *world, may func(string, func(*world))) {
	for i, p := range w.pods {
		on := func(format string) string { return fmt.Sprintf(format, i) }
		switch p.life {
		case killed:
			may(on("the container of pod %d starts again"), func(w *world) { w.pods[i].life = again })
		case draining:
			may(on("pod %d has drained"), func(w *world) {
				w.stop(i, gone)
				w.publish()
			})
		case lost:
			may(on("the node of pod %d is back"), func(w *world) { w.pods[i].life = serving })
		case serving, again, gone:
		}
		if w.cut[i] {
			may(on("the pods other than %d are connected again"), func(w *world) { w.cut[i] = false })
		}
		if p.stuck {
			may(on("pod %d answers again"), func(w *world) { w.pods[i].stuck = false })
		}
		if w.blind[i] || w.forgot[i] {
			may(on("the manager knows pod %d again"), func(w *world) {
				w.blind[i], w.forgot[i] = false, false
				w.publish()
			})
		}
		if w.mayRotate(i) {
			may(on("pod %d reads the next keys"), func(w *world) { w.pods[i].stage++ })
		}
	}
}

// mayRotate reports whether there are other keys for a pod: the manager goes on when all pods have read those before.
func (w *world) mayRotate(pod int) bool {
	stage := w.pods[pod].stage
	for _, p := range w.pods {
		if p.life != gone && p.stage < stage {
			return false
		}
	}
	return stage+1 < stages && w.pods[pod].life != gone
}

// listEvents are lists that arrive, of which any may be late or lost.
func (m *model) listEvents(w *world, may func(string, func(*world))) {
	for i := range w.pods {
		if !w.isUp(i) {
			continue
		}
		for g := w.entry[i].generation() + 1; g <= len(w.lists); g++ {
			may(fmt.Sprintf("list %d reaches pod %d", g, i), func(w *world) { m.deliver(w, i, g) })
		}
		if w.entry[i].generation() == len(w.lists) {
			may(fmt.Sprintf("the manager polls pod %d", i), func(w *world) { m.renew(w, i) })
		}
	}
}

// requestEvents are what clients do, and time.
func (m *model) requestEvents(w *world, may func(string, func(*world))) {
	waits := false
	for s := range w.flight {
		if w.flight[s].entry >= 0 {
			waits = true
			continue
		}
		for entry := range w.pods {
			if entry == s || !w.isUp(entry) {
				continue
			}
			may(fmt.Sprintf("a request of session %d at pod %d", s, entry), func(w *world) { m.send(w, s, entry) })
			may(fmt.Sprintf("requests of session %d at pod %d for %s", s, entry, deadAfter), func(w *world) { m.persist(w, s, entry, deadAfter) })
			may(fmt.Sprintf("requests of session %d at pod %d for %s", s, entry, stuckAfter), func(w *world) { m.persist(w, s, entry, stuckAfter+5*time.Second) })
		}
	}
	may(modelTick.String()+" pass", func(w *world) { m.pass(w, modelTick) })
	if !waits {
		may(modelRest.String()+" pass", func(w *world) { m.pass(w, modelRest) })
	}
}

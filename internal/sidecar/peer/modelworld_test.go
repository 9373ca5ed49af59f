package peer

import (
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// The model is small: session 0 lives in pod 0 and session 1 in pod 1, and clients reach each at the two other pods.
const (
	modelPods     = 3
	modelSessions = 2
	// modelTick is the time between two attempts of a request, and modelRest is longer than silence is remembered.
	modelTick = 2500 * time.Millisecond
	modelRest = 20 * time.Second
)

// life is what becomes of a pod.
type life uint8

const (
	serving  life = iota
	draining      // deleted, and its session goes on
	killed        // nothing listens, and the container is about to start again
	again         // the container has started again in place, without the session
	lost          // its node is unreachable, for a while or for good
	gone
)

// tenant is what has the address of a pod, as far as a connection shows it.
type tenant uint8

const (
	vacant tenant = iota
	itself
	sibling   // another pod of the server
	foreigner // another program
	mute      // the pod itself, which takes connections and says nothing
	tenants
)

type modelPod struct {
	life   life
	tenant tenant // once the pod is gone
	stuck  bool
	stage  uint8 // of the rotation of keys
}

// snapshot is a list of the manager, as bits by pod.
type snapshot struct{ listed, doubted uint8 }

// sighting is when an entry failed to reach a pod: the first and the last time in a row, and the first since the
// address last existed. It is what a checker can know without the notes.
type sighting struct{ first, silent, last time.Duration }

// taken is a list that an entry has, and when.
type taken struct {
	generation  int
	at, renewed time.Duration
}

// modelEntry is what one adapter remembers. World values share it, so nothing changes one that is in use.
type modelEntry struct {
	notes    *notes
	lists    []taken
	roster   *roster.Roster // made from lists
	sighting [modelPods]sighting
}

// flight is a request that waits for a pod.
type flight struct {
	entry    int // -1: there is none
	began    time.Duration
	attempts int
}

// world is one state of the model.
type world struct {
	now    time.Duration
	pods   [modelPods]modelPod
	alive  [modelSessions]bool
	cut    [modelPods]bool // between the two pods other than this one
	blind  [modelPods]bool // the manager cannot reach it
	forgot [modelPods]bool // a new leader does not know it yet
	lists  []snapshot      // generation 1 is the first
	entry  [modelPods]modelEntry
	flight [modelSessions]flight
	faults int
}

var modelEpoch = time.Unix(1_000_000, 0)

func (w *world) time() time.Time { return modelEpoch.Add(w.now) }

func modelOwner(pod int) sessionid.Owner {
	return sessionid.Owner{UID: [16]byte{byte(pod + 1)}, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(pod + 1)}), 16272)}
}

// newWorld is a world where all is well and every pod has the list.
func (m *model) newWorld() world {
	w := world{now: modelTick} // 0 stands for never
	for i := range w.alive {
		w.alive[i] = true
		w.flight[i].entry = -1
	}
	w.publish()
	for i := range w.pods {
		w.entry[i] = modelEntry{notes: newNotes()}
		m.deliver(&w, i, len(w.lists))
	}
	return w
}

// publish has the manager make a list of what it knows, if that has changed.
func (w *world) publish() {
	var s snapshot
	for i, pod := range w.pods {
		if pod.life == gone || w.forgot[i] {
			continue
		}
		s.listed |= 1 << i
		if w.blind[i] {
			s.doubted |= 1 << i
		}
	}
	if len(w.lists) == 0 || w.lists[len(w.lists)-1] != s {
		w.lists = append(slices.Clip(w.lists), s)
	}
}

// deliver gives a list to a pod, which may have a newer one.
func (m *model) deliver(w *world, entry, generation int) {
	e := &w.entry[entry]
	if e.generation() >= generation {
		return // the roster refuses it, which it has tests for
	}
	e.lists = append(slices.Clip(e.lists), taken{generation, w.now, w.now})
	e.roster = m.rosterOf(w.lists, e.lists)
}

// renew is a poll of the manager that finds its newest list at the pod.
func (m *model) renew(w *world, entry int) {
	e := &w.entry[entry]
	if e.generation() != len(w.lists) {
		return
	}
	e.lists = slices.Clone(e.lists)
	e.lists[len(e.lists)-1].renewed = w.now
	e.roster = m.rosterOf(w.lists, e.lists)
}

func (e *modelEntry) generation() int {
	if len(e.lists) == 0 {
		return 0
	}
	return e.lists[len(e.lists)-1].generation
}

// rosterOf is a roster that has taken these lists at these times.
func (m *model) rosterOf(lists []snapshot, history []taken) *roster.Roster {
	r := roster.NewAt(func() time.Time { return m.clock })
	for _, t := range history {
		m.clock = modelEpoch.Add(t.at)
		if err := r.Take(m.text(lists[t.generation-1], t.generation)); err != nil {
			panic(err)
		}
		m.clock = modelEpoch.Add(t.renewed)
		r.Renew(int64(t.generation))
	}
	return r
}

// text is a list as the manager sends it.
func (m *model) text(s snapshot, generation int) []byte {
	key := fmt.Sprint(s, generation)
	if text, ok := m.texts[key]; ok {
		return text
	}
	// The manager's list never is without any pod: there is one that the model says nothing of.
	list := adapterapi.Peers{Version: adapterapi.PeersVersion, Generation: int64(generation), Pods: []adapterapi.PeerPod{{UID: hex.EncodeToString([]byte("another pod uid!"))}}}
	for i := range modelPods {
		if uid := modelOwner(i).UID; s.listed&(1<<i) != 0 {
			list.Pods = append(list.Pods, adapterapi.PeerPod{UID: hex.EncodeToString(uid[:]), Ready: true, Doubted: s.doubted&(1<<i) != 0})
		}
	}
	encoded, err := list.Encode()
	if err != nil {
		panic(err)
	}
	m.texts[key] = []byte(encoded.Text)
	return m.texts[key]
}

// standing is what the pod's list says of another.
func (m *model) standing(w *world, entry, pod int) roster.Standing {
	m.clock = w.time()
	if w.entry[entry].roster == nil {
		return roster.Unknown
	}
	return w.entry[entry].roster.Standing(modelOwner(pod).UID)
}

// writable returns notes of an entry that may be changed.
func (w *world) writable(entry int) *notes {
	e := &w.entry[entry]
	e.notes = &notes{pods: maps.Clone(e.notes.pods), order: slices.Clone(e.notes.order)}
	return e.notes
}

func (w *world) isUp(pod int) bool {
	return w.pods[pod].life == serving || w.pods[pod].life == draining || w.pods[pod].life == again
}

// isCut reports whether nothing gets from one pod to the other.
func (w *world) isCut(a, b int) bool { return w.cut[modelPods-a-b] || w.pods[b].life == lost }

// contact is how an attempt to connect ends.
func (m *model) contact(w *world, entry, pod int) contact {
	at := &w.pods[pod]
	who := itself
	switch {
	case at.life == gone:
		who = at.tenant
	case w.isCut(entry, pod):
		who = vacant
	case at.life == killed:
		return refused
	case at.stuck:
		who = mute
	}
	return m.contacts[who][w.pods[entry].stage][at.stage]
}

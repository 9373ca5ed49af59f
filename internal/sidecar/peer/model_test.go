package peer

import (
	"flag"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// The model goes through all orders of what may happen to three pods with two sessions, up to some depth. What decides is the code
// of the adapter: notes, verdicts, the roster, the ids, and what the relay and the handshakes make of each thing that may be at
// an address. What the model has of its own is the world, and the few lines of passage.run that repeat an attempt.

var modelDepth = flag.Int("model-depth", 0, "how many events the model goes through; 0 is what the test is worth")

// model is the walk.
type model struct {
	contacts contactTable
	ids      [modelSessions]string
	routers  [modelPods][stages]*Router
	texts    map[string][]byte
	clock    time.Time // of rosters
	seeds    [2]maphash.Seed
	seen     map[[2]uint64]struct{}
	answers  map[answer]int
	wrong    string // what the last event broke
}

// answer is what a client gets.
type answer uint8

const (
	answered    answer = iota // by the session's process
	notFound                  // 404
	unavailable               // 503
	pending
)

func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{
		contacts: findContacts(t), texts: map[string][]byte{}, seen: map[[2]uint64]struct{}{}, answers: map[answer]int{},
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
	}
	var parse [stages]func(string) (sessionid.Owner, error)
	m.ids, parse = idsOf(t)
	for entry := range m.routers {
		for stage := range stages {
			m.routers[entry][stage] = &Router{options: Options{Self: modelOwner(entry), Parse: func(id string) (sessionid.Owner, bool, error) {
				owner, err := parse[stage](id)
				return owner, false, err
			}}}
		}
	}
	return m
}

func (m *model) fail(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
	}
}

// send has a client send a request of a session, if none is on its way.
func (m *model) send(w *world, session, entry int) answer {
	router := m.routers[entry][w.pods[entry].stage]
	router.notes = w.entry[entry].notes
	router.options.Standing = func(uid [16]byte) roster.Standing { return m.standing(w, entry, int(uid[0])-1) }
	if _, _, elsewhere := router.locate("forged", w.time()); elsewhere {
		m.fail("an id that no key has made leads to a pod")
	}
	owner, _, elsewhere := router.locate(m.ids[session], w.time())
	if !elsewhere {
		m.checkNotFound(w, session, entry, untried)
		return m.answer(notFound)
	}
	if owner != modelOwner(session) {
		m.fail("a request of session %d goes to %s", session, owner.Address)
	}
	w.flight[session] = flight{entry: entry, began: w.now}
	return m.attempt(w, session)
}

// attempt is one turn of the loop in passage.run.
func (m *model) attempt(w *world, session int) answer {
	f := &w.flight[session]
	entry := f.entry
	f.attempts++
	last := m.contact(w, entry, session)
	if last == connected {
		w.writable(entry).answered(modelOwner(session).UID)
		w.entry[entry].sighting[session] = sighting{}
		f.entry = -1
		if w.alive[session] && w.pods[session].life != again {
			return m.answer(answered)
		}
		return m.answer(notFound) // the pod that had it says so
	}
	w.entry[entry].sighting[session].note(w.now, last)
	_, verdict := w.writable(entry).judge(modelOwner(session).UID, knowledge{contact: last, listing: m.standing(w, entry, session)}, f.attempts, w.time())
	switch {
	case verdict == over:
		m.checkNotFound(w, session, entry, last)
		f.entry = -1
		return m.answer(notFound)
	case verdict != wait, w.now-f.began >= patience:
		f.entry = -1
		return m.answer(unavailable)
	}
	return pending
}

func (m *model) answer(a answer) answer {
	m.answers[a]++
	return a
}

// note is the checker's own record of failed attempts.
func (s *sighting) note(now time.Duration, last contact) {
	if s.last == 0 || now-s.last > noteLapse {
		*s = sighting{first: now, silent: now}
	}
	s.last = now
	if last == unready {
		s.silent = 0
	} else if s.silent == 0 {
		s.silent = now
	}
}

// checkNotFound says whether an entry may answer 404 for a session without its pod.
func (m *model) checkNotFound(w *world, session, entry int, last contact) {
	if !w.alive[session] {
		return
	}
	seen, says := w.entry[entry].sighting[session], m.standing(w, entry, session)
	long := last == unreachable && w.now-seen.silent >= deadAfter || last == unready && w.now-seen.first >= stuckAfter
	switch {
	case says == roster.Listed:
		m.fail("404 for session %d, whose pod the list has as reachable; contact %d", session, last)
	case says == roster.Removed && seen.last != 0 && w.now-seen.last <= goneLapse:
		// The entry's list has lost the pod, and the entry cannot reach it either.
	case last == untried:
		m.fail("404 for session %d without an attempt; the list says %d", session, says)
	case !long:
		m.fail("404 for session %d after %s; the list says %d, contact %d", session, w.now-seen.first, says, last)
	}
}

// pass lets time pass. Requests that wait try again, and have these answers.
func (m *model) pass(w *world, d time.Duration) (got [modelSessions]answer) {
	w.now += d
	for s := range w.flight {
		if w.flight[s].entry >= 0 {
			got[s] = m.attempt(w, s)
		}
	}
	return got
}

// persist has a client send one request after the other until it has an answer other than 503. It returns how long that took.
func (m *model) persist(w *world, session, entry int, most time.Duration) (got answer, took time.Duration) {
	began := w.now
	for {
		if w.flight[session].entry < 0 {
			got = m.send(w, session, entry)
		}
		for w.flight[session].entry >= 0 {
			got = m.pass(w, modelTick)[session]
		}
		if took = w.now - began; got != unavailable || took >= most {
			return got, took
		}
	}
}

// checkLiveness says whether everything works again once all faults are over, and whether clients learn in time of a pod that
// does not come back.
func (m *model) checkLiveness(w world) {
	stay := w
	for i := range w.pods {
		p := &w.pods[i]
		p.stuck, w.cut[i], w.blind[i], w.forgot[i] = false, false, false, false
		switch p.life {
		case lost:
			p.life = serving
		case killed:
			p.life = again
		case serving, draining, again, gone:
		}
	}
	m.settle(&w)
	m.pass(&w, modelTick)
	m.pass(&w, modelTick)
	m.pass(&w, modelTick)
	for s := range w.flight {
		if w.flight[s].entry >= 0 {
			m.fail("a request of session %d has no answer %s after it was sent", s, w.now-w.flight[s].began)
		}
	}
	for s := range w.alive {
		m.eachEntry(&w, s, func(w *world, entry int) {
			switch got, took := m.persist(w, s, entry, modelRest); {
			case w.alive[s] && (got != answered || took > 0):
				m.fail("session %d does not work again at pod %d: answer %d after %s", s, entry, got, took)
			case !w.alive[s] && got != notFound:
				m.fail("session %d is over, and pod %d does not say so within %s: %d", s, entry, modelRest, got)
			}
		})
	}
	if !slices.ContainsFunc(stay.pods[:modelSessions], func(p modelPod) bool { return p.life == lost }) {
		return
	}
	for i, p := range stay.pods {
		stay.blind[i] = stay.blind[i] || p.life == lost
	}
	m.settle(&stay)
	for s := range stay.alive {
		if stay.pods[s].life == lost {
			m.eachEntry(&stay, s, func(w *world, entry int) {
				if got, took := m.persist(w, s, entry, modelRest); got != notFound {
					m.fail("the node of session %d is lost, and pod %d does not say so within %s: %d", s, entry, took, got)
				}
			})
		}
	}
}

// settle delivers the newest list to every pod.
func (m *model) settle(w *world) {
	w.publish()
	for i := range w.pods {
		if w.entry[i].generation() < len(w.lists) {
			m.deliver(w, i, len(w.lists))
		} else {
			m.renew(w, i)
		}
	}
}

// eachEntry calls a function for each pod that a client of the session may reach, each time in the same world.
func (m *model) eachEntry(w *world, session int, f func(*world, int)) {
	for entry := range w.pods {
		if entry != session && w.isUp(entry) {
			one := *w
			if one.flight[session].entry >= 0 && one.flight[session].entry != entry {
				continue
			}
			f(&one, entry)
		}
	}
}

// key is what decides about the future of a world, with times before now.
func (m *model) key(w *world) [2]uint64 {
	b := make([]byte, 0, 256)
	flags := func(all ...bool) {
		bits := byte(0)
		for i, set := range all {
			if set {
				bits |= 1 << i
			}
		}
		b = append(b, bits)
	}
	since := func(then, most time.Duration) byte { return byte(min(w.now-then, most) / modelTick) }
	oldest := len(w.lists)
	for i, p := range w.pods {
		b = append(b, byte(p.life), byte(p.tenant), p.stage)
		flags(p.stuck, w.cut[i], w.blind[i], w.forgot[i])
		oldest = min(oldest, max(1, w.entry[i].generation()))
	}
	flags(w.alive[:]...)
	for _, list := range w.lists[oldest-1:] {
		b = append(b, list.listed, list.doubted, 0xff)
	}
	for i := range w.entry {
		e := &w.entry[i]
		b = append(b, byte(len(w.lists)-e.generation()))
		if e.roster != nil {
			m.clock = w.time()
			b = append(b, byte(min(e.roster.Age(), 2*modelRest)/modelTick))
		}
		for pod := range w.pods {
			b = append(b, byte(m.standing(w, i, pod)))
			b = m.appendNote(b, w, e, pod)
			if s := e.sighting[pod]; s.last == 0 || w.now-s.last > goneLapse {
				b = append(b, 0xff)
			} else {
				b = append(b, since(s.first, stuckAfter+modelRest), since(s.silent, modelRest), since(s.last, 2*modelRest))
			}
		}
	}
	for _, f := range w.flight {
		b = append(b, byte(f.entry))
		if f.entry >= 0 {
			b = append(b, since(f.began, modelRest), byte(min(f.attempts, 2)))
		}
	}
	b = append(b, byte(w.faults))
	return [2]uint64{maphash.Bytes(m.seeds[0], b), maphash.Bytes(m.seeds[1], b)}
}

// appendNote appends what a note still says.
func (m *model) appendNote(b []byte, w *world, e *modelEntry, pod int) []byte {
	known, has := e.notes.pods[modelOwner(pod).UID]
	now := w.time()
	if !has {
		return append(b, 0xff)
	}
	ago := func(then time.Time) byte { return byte(min(now.Sub(then), stuckAfter+modelRest) / modelTick) }
	if now.Sub(known.gone) < goneLapse {
		b = append(b, 1, ago(known.gone))
	}
	if now.Sub(known.lastTried) <= noteLapse {
		b = append(b, 2, ago(known.failingSince), ago(known.silentSince), ago(known.lastTried))
	}
	return append(b, 0xfe)
}

// path is how a world came about.
type path struct {
	before *path
	event  string
}

func (p *path) String() string {
	var events []string
	for ; p != nil; p = p.before {
		events = append(events, p.event)
	}
	slices.Reverse(events)
	return strings.Join(events, "\n  ")
}

type reached struct {
	world world
	path  *path
}

// walk goes through all worlds that so many events lead to, and returns how many there are. It stops at the first that is wrong.
func (m *model) walk(t *testing.T, depth int) {
	t.Helper()
	at := []reached{{world: m.newWorld()}}
	for level := range depth {
		var next []reached
		for i := range at {
			from := &at[i]
			m.events(&from.world, func(name string, happen func(*world)) {
				if m.wrong != "" {
					return
				}
				to := from.world
				happen(&to)
				key := m.key(&to)
				if _, known := m.seen[key]; m.wrong == "" && known {
					return
				}
				m.seen[key] = struct{}{}
				if m.wrong == "" {
					m.checkLiveness(to)
				}
				step := &path{from.path, name}
				if m.wrong != "" {
					t.Fatalf("%s, after\n  %s", m.wrong, step)
				}
				if level < depth-1 {
					next = append(next, reached{to, step})
				}
			})
			at[i] = reached{}
		}
		at = next
	}
	t.Logf("%d states by %d events; answers: %d by sessions, %d × 404, %d × 503", len(m.seen), depth, m.answers[answered], m.answers[notFound], m.answers[unavailable])
	for _, kind := range []answer{answered, notFound, unavailable} {
		if m.answers[kind] == 0 {
			t.Errorf("no request had answer %d", kind)
		}
	}
}

func (m *model) run(t *testing.T, depth int) {
	t.Helper()
	if *modelDepth > 0 {
		depth = *modelDepth
	}
	m.walk(t, depth)
}

// Whatever happens to three pods, in whichever order, no client loses a session that lives, and each learns in time of one
// that does not.
func TestModel(t *testing.T) {
	t.Parallel()
	newModel(t).run(t, modelDefaultDepth)
}

// The same, for longer.
func TestLongModel(t *testing.T) {
	newModel(t).run(t, modelDefaultDepth+1)
}

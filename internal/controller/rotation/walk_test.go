package rotation

import (
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// The two keys of the walk, as bits of a set.
const (
	oldKey = 1
	newKey = 2
)

// ring is what a Secret has, or a pod has read.
type ring struct {
	current  uint8
	accepted uint8 // with the current one
}

// world is everything that a rotation can depend on.
type world struct {
	secret  ring
	version uint8 // of the Secret: how many steps were written
	age     uint8 // since the last step: 1 after the idle timeout, 2 when no session can be left
	pods    [2]walker
	// decided is a step that some manager has decided on, and not written yet. It may be slow, or dead.
	decided Step
	on      uint8 // which version
}

// walker is a pod.
type walker struct {
	isThere, isLeaving bool
	isCut              bool // off from the manager, and from its kubelet
	has                ring
	sessions           uint8 // keys that have sealed some

	isTold, isSilent bool // what the manager knows of it
	told             ring
	toldSessions     uint8

	isForsaken bool // the last key was dropped although it could not be asked, because no session can be left
}

func (p *walker) tell() {
	p.isTold, p.isSilent, p.told, p.toldSessions = true, false, p.has, p.sessions
}

func (r ring) use(sessions uint8) *adapterapi.KeyUse {
	use := &adapterapi.KeyUse{Current: id(int(r.current))}
	for _, key := range []uint8{oldKey, newKey} {
		if key != r.current && r.accepted&key != 0 {
			use.Others = append(use.Others, adapterapi.OtherKey{ID: id(int(key)), Sessions: int64(sessions & key)})
		}
	}
	return use
}

func (w *world) decide() Step {
	f := &Facts{Keys: Keys{Current: id(int(w.secret.current))}, Requested: "now", IdleTimeout: idle, MaxLifetime: lifetime, Now: noon}
	f.Keys.Changed = noon.Add(-[]time.Duration{0, idle, lifetime + lag}[w.age])
	if w.version > 0 {
		f.Keys.Honored = f.Requested
	}
	switch other := w.secret.accepted &^ w.secret.current; {
	case other == newKey:
		f.Keys.Next = id(newKey)
	case other != 0:
		f.Keys.Older = []string{id(int(other))}
	}
	for i := range w.pods {
		p := &w.pods[i]
		if !p.isThere {
			continue
		}
		pod := Pod{Answered: p.isTold, Silent: p.isSilent, Leaving: p.isLeaving, Unasked: !p.isTold && !p.isSilent && !p.isLeaving}
		if p.isTold {
			pod.Use = p.told.use(p.toldSessions)
		}
		f.Pods = append(f.Pods, pod)
	}
	return Next(f).Step
}

// write does a step, as long as the Secret is the one that it was decided on.
func (w *world) write() {
	step := w.decided
	w.decided = None
	if w.on != w.version {
		return
	}
	switch step {
	case None:
		return
	case Add:
		w.secret.accepted |= newKey
	case Switch:
		w.secret.current = newKey
	case Drop:
		w.secret.accepted = w.secret.current
		for i := range w.pods {
			p := &w.pods[i]
			p.isForsaken = w.age == 2 && (p.isSilent || p.isCut && !p.isTold)
		}
	}
	w.version++
	w.age = 0
}

// pass lets time pass. The manager asks pods meanwhile, and no session is older than it may be. Pods that are not cut
// off may still not have read the Secret.
func (w *world) pass() {
	w.age++
	for i := range w.pods {
		p := &w.pods[i]
		if w.age == 2 {
			p.sessions &= p.has.current // those that it goes on to open
			if p.isLeaving {
				p.sessions = 0
			}
		}
		switch {
		case p.isCut:
			p.isSilent = true
		case p.isTold || !p.isLeaving: // managers do not ask some that leave
			p.tell()
		}
	}
}

// after are the worlds that can come next. Accidents are pods that are cut off, and managers that are replaced.
func (w world) after(accidents bool) []world {
	var all []world
	add := func(change func(*world)) {
		next := w
		change(&next)
		if next != w {
			all = append(all, next)
		}
	}
	add(func(n *world) { n.decided, n.on = n.decide(), n.version })
	add((*world).write)
	if accidents {
		add(func(n *world) { // another manager
			for i := range n.pods {
				n.pods[i].isTold, n.pods[i].isSilent = false, false
			}
		})
	}
	if w.age < 2 {
		add((*world).pass)
	}
	for i := range w.pods {
		pod := func(change func(n *world, p *walker)) { add(func(n *world) { change(n, &n.pods[i]) }) }
		if !w.pods[i].isThere {
			pod(func(n *world, p *walker) { *p = walker{isThere: true, has: n.secret} })
			continue
		}
		pod(func(_ *world, p *walker) { *p = walker{} })
		if w.pods[i].isCut {
			pod(func(_ *world, p *walker) { p.isSilent = true })
		} else {
			pod(func(_ *world, p *walker) { p.tell() })
			pod(func(_ *world, p *walker) { p.isCut = accidents })
		}
		for _, key := range []uint8{oldKey, newKey} {
			pod(func(_ *world, p *walker) { p.sessions &^= key })
		}
		if w.pods[i].isLeaving {
			continue
		}
		pod(func(_ *world, p *walker) { p.isLeaving = true })
		pod(func(_ *world, p *walker) { p.isLeaving, p.isTold = true, false })
		pod(func(_ *world, p *walker) { p.sessions |= p.has.current })
		if !w.pods[i].isCut {
			pod(func(n *world, p *walker) { p.has = n.secret })
		}
	}
	return all
}

// wrong says what a rotation has broken; nothing if no client and no manager notices it.
func (w *world) wrong() string {
	for i := range w.pods {
		one, other := &w.pods[i], &w.pods[1-i]
		if !one.isThere || one.isForsaken {
			continue
		}
		if one.has.accepted&w.secret.current == 0 {
			return "a pod refuses the manager"
		}
		if !other.isThere || other.isForsaken {
			continue
		}
		if one.has.accepted&other.has.current == 0 {
			return "a pod refuses another one"
		}
		if one.sessions&^other.has.accepted != 0 {
			return "a pod does not know the id of a session of another one"
		}
	}
	return ""
}

// settle has everything happen that is not an accident: pods read the Secret, answer, lose their sessions and end their
// drains. It reports whether the rotation is over then.
func (w world) settle() bool {
	for range 8 {
		for i := range w.pods {
			p := &w.pods[i]
			if p.isLeaving || p.isCut {
				*p = walker{} // a node that is lost is removed
			}
			if p.isThere {
				p.has, p.sessions = w.secret, p.sessions&w.secret.current
				p.tell()
			}
		}
		w.age = max(w.age, 1)
		w.decided, w.on = w.decide(), w.version
		w.write()
	}
	return w.version == 3 && w.secret == ring{newKey, newKey} && w.decide() == None
}

// Whatever happens in whatever order, and whichever manager goes on: no pod refuses a manager or a client, no session is lost, and the
// rotation comes to its end.
func TestLongEveryOrder(t *testing.T) { walk(t, true) }

// The same without accidents.
func TestEveryOrder(t *testing.T) { walk(t, false) }

func walk(t *testing.T, accidents bool) {
	t.Helper()
	begin := ring{oldKey, oldKey}
	first := world{secret: begin, pods: [2]walker{{isThere: true, has: begin, sessions: oldKey}, {isThere: true, has: begin}}}
	from := map[world]*world{first: nil}
	over := false
	for queue := []world{first}; len(queue) > 0; queue = queue[1:] {
		w := queue[0]
		if why := w.wrong(); why != "" {
			for step := &w; step != nil; step = from[*step] {
				t.Logf("%+v", *step)
			}
			t.Fatalf("%s; how it came about, last step first, is above", why)
		}
		if !w.settle() {
			t.Fatalf("the rotation does not come to its end from %+v", w)
		}
		over = over || w.version == 3
		for _, next := range w.after(accidents) {
			if _, seen := from[next]; !seen {
				from[next] = &w
				queue = append(queue, next)
			}
		}
	}
	if !over {
		t.Error("no order leads to the end")
	}
	t.Logf("%d worlds", len(from))
}

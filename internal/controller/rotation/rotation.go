// Package rotation decides how a server gets another key without losing a session.
//
// A rotation has three steps. Add: every pod comes to accept the next key, and none uses it. Switch: pods come to use it,
// and go on to accept the last one. Drop: the last key is forgotten. The next step follows from the Secret and from
// what pods say, and from nothing that a manager remembers. So it does not matter which manager does it, and when a
// manager dies, the next one goes on. The controller only writes a step on the version of the Secret that it was decided on.
package rotation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

const (
	// Patience is how long pods may take to read the next key before the manager warns. A kubelet brings a volume up
	// to date within 90 seconds.
	Patience = 5 * time.Minute
	// lag is how long after a switch pods may go on to use the last key, because their kubelets are late.
	lag = 10 * time.Minute
	// namedPods is how many pods a sentence names.
	namedPods = 3
)

// Keys are the keys of a server, by their ids, as its Secret has them.
type Keys struct {
	Current string
	Next    string   // added, and not current yet; empty outside a rotation
	Older   []string // accepted, and current before
	// Honored is the request that the last rotation was begun for.
	Honored string
	// Changed is when the last step was done.
	Changed time.Time
}

// Pod is a pod that has the keys, or may have them.
type Pod struct {
	Name string
	// Use is what its adapter said last; nil if it never said.
	Use *adapterapi.KeyUse
	// Answered says that it has answered, Silent that it did not when it was last asked.
	Answered, Silent bool
	// Unasked says that this manager asks it, and does not know yet whether it answers.
	Unasked bool
	// Leaving says that it was deleted. Its kubelet does not bring its volumes up to date any more, and it opens no new
	// sessions.
	Leaving bool
}

// Facts are all that a decision depends on.
type Facts struct {
	Keys Keys
	Pods []Pod
	// Requested is what the user has asked for a rotation with; a value that was not honored yet asks for one.
	Requested string
	// Every is the time between two rotations; 0 if there are none by themselves.
	Every time.Duration
	// IdleTimeout and MaxLifetime are those of sessions.
	IdleTimeout, MaxLifetime time.Duration
	Now                      time.Time
}

// Step is what is to be done with the keys.
type Step int

// The steps.
const (
	None Step = iota
	Add
	Switch
	Drop
)

func (s Step) String() string { return [...]string{"none", "add", "switch", "drop"}[s] }

// Decision is the next step, or what it waits for.
type Decision struct {
	Step Step
	// Again is when to decide again, if nothing happens before; 0 for never.
	Again time.Duration
	// Blocked says what is in the way of the next step, once that takes longer than it should; for people.
	Blocked string
}

// Next decides.
func Next(f *Facts) Decision {
	switch {
	case f.Keys.Next != "":
		return f.toSwitch()
	case len(f.Keys.Older) > 0:
		return f.toDrop()
	default:
		return f.toAdd()
	}
}

func (f *Facts) age() time.Duration { return f.Now.Sub(f.Keys.Changed) }

func (f *Facts) toAdd() Decision {
	switch left := f.Every - f.age(); {
	case f.Requested != "" && f.Requested != f.Keys.Honored, f.Every > 0 && left <= 0:
		return Decision{Step: Add}
	case f.Every > 0:
		return Decision{Again: left}
	default:
		return Decision{}
	}
}

// toSwitch waits until every pod accepts the next key. From then on, manager and pods may prove themselves with it.
func (f *Facts) toSwitch() Decision {
	var blocked []string
	unasked := false
	for i := range f.Pods {
		if why := f.Pods[i].lacks(f.Keys.Next); why != "" {
			blocked = append(blocked, why)
			unasked = unasked || f.Pods[i].Unasked
		}
	}
	switch left := Patience - f.age(); {
	case len(blocked) == 0:
		return Decision{Step: Switch}
	case left > 0:
		return Decision{Again: left}
	case unasked: // its answer has the controller decide again
		return Decision{Again: Patience}
	default:
		return Decision{Blocked: "the key is not rotated before all pods have read the next one: " + sentence(blocked)}
	}
}

// lacks says why a pod may not accept a key; nothing if it does.
func (p *Pod) lacks(key string) string {
	switch {
	case p.Use != nil && p.Use.Accepts(key):
		return ""
	case p.Leaving:
		return p.Name + " is shutting down, and will not read it"
	case p.Use != nil && !p.Silent:
		return p.Name + " has not read it"
	case p.Use == nil && p.Answered && !p.Silent:
		return p.Name + " has an adapter that does not say which keys it accepts"
	default:
		return p.Name + " does not answer the manager"
	}
}

// toDrop waits until the older keys are unused: no pod uses one, and no session that is open has an id of one. What
// else pods have signed, such as the state of a request, is good for as long as a session may be idle. A pod that cannot
// be asked keeps a key until no session of it can be left. One that was deleted keeps it until it is gone: it may have
// been late with the current key, and have young sessions.
func (f *Facts) toDrop() Decision {
	if left := f.IdleTimeout - f.age(); left > 0 {
		return Decision{Again: left}
	}
	left := f.MaxLifetime + lag - f.age()
	var blocked []string
	unasked := false
	for i := range f.Pods {
		if pod := &f.Pods[i]; pod.needs(&f.Keys) && (left > 0 || pod.isAlive()) {
			blocked = append(blocked, pod.Name+" may still use it")
			unasked = unasked || pod.Unasked
		}
	}
	switch {
	case len(blocked) == 0:
		return Decision{Step: Drop}
	case left > 0:
		return Decision{Again: left}
	case unasked:
		return Decision{Again: Patience}
	default:
		return Decision{Blocked: "the last key is valid for longer than a session may live: " + sentence(blocked)}
	}
}

// needs says whether a pod may need an older key.
func (p *Pod) needs(keys *Keys) bool {
	return p.Use == nil || p.Use.Current != keys.Current || slices.ContainsFunc(keys.Older, p.Use.Uses)
}

// isAlive says whether what a pod needs counts for as long as it is there.
func (p *Pod) isAlive() bool { return p.Leaving || p.Unasked || p.Use != nil && !p.Silent }

func sentence(parts []string) string {
	text := strings.Join(parts[:min(len(parts), namedPods)], "; ")
	if more := len(parts) - namedPods; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

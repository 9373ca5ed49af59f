package prober

import (
	"container/heap"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Watch replaces the instances of a server; none forgets it. An instance that is as
// it was keeps its place in the schedule and what is known of it.
func (p *Prober) Watch(name types.NamespacedName, instances []Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	s := p.servers[name]
	if s == nil {
		if len(instances) == 0 {
			return
		}
		s = &server{name: name, instances: map[types.UID]*instance{}, gone: p.takeGone(name)}
		p.servers[name] = s
	}
	present := make(map[types.UID]bool, len(instances))
	for _, want := range instances {
		present[want.UID] = true
		want = want.withDefaults()
		if known := s.instances[want.UID]; known != nil {
			p.update(known, want, now)
		} else {
			p.add(s, want, now)
		}
	}
	for uid, known := range s.instances {
		if !present[uid] {
			p.drop(known)
			delete(s.instances, uid)
			s.gone.add(uid, now)
		}
	}
	s.forgetStored()
	p.list(s, now)
	if len(s.instances) == 0 {
		if s.timer != nil {
			s.timer.Stop()
		}
		delete(p.servers, name)
		p.keepGone(s)
	}
	p.signal()
}

func (i Instance) withDefaults() Instance {
	if i.Interval <= 0 {
		i.Interval = defaultInterval
	}
	if i.Timeout <= 0 {
		i.Timeout = defaultTimeout
	}
	return i
}

// Results are what is known of the instances of a server, by the UID of the pod. They
// are the caller's; what they point to is shared and never changed.
func (p *Prober) Results(name types.NamespacedName) map[types.UID]Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.servers[name]
	if s == nil {
		return nil
	}
	results := make(map[types.UID]Result, len(s.instances))
	for uid, i := range s.instances {
		results[uid] = i.result
	}
	return results
}

func (p *Prober) add(s *server, want Instance, now time.Time) {
	i := &instance{Instance: want, server: s, index: -1, result: Result{Outcome: Pending}}
	s.instances[want.UID] = i
	s.gone.remove(want.UID)
	i.trigger(now)
	i.at = i.next(now)
	p.enqueue(i)
	p.options.Log.V(2).Info("Looking after an instance", "MCPServer", klog.KRef(s.name.Namespace, s.name.Name),
		"Pod", klog.KRef(want.Pod.Namespace, want.Pod.Name), "ready", want.Ready)
}

func (p *Prober) drop(i *instance) {
	if i.running != nil {
		i.running.cancel()
	}
	if i.index >= 0 {
		heap.Remove(&p.queue, i.index)
	}
	i.state = gone
}

// update records the changes of an instance.
func (p *Prober) update(i *instance, want Instance, now time.Time) {
	was := i.Instance
	i.Instance = want
	i.Peers = was.Peers
	moved := was.IP != want.IP || was.Key != want.Key
	changed := moved || was.Ready != want.Ready || was.Starts != want.Starts || was.Refresh != want.Refresh
	if moved {
		i.etag = ""
	}
	switch {
	case changed:
		i.trigger(now)
		if i.running != nil { // it is asked again as soon as that is over
			i.running.stale = true
			i.running.cancel()
		}
		p.reschedule(i, i.next(now))
	case i.hurry(was, now):
		p.reschedule(i, now) // if it is being asked, it is sent them right after
	case i.lost(was.Stored):
		p.reschedule(i, earlier(i.at, now.Add(jitter(firstAsk))))
	case was.Interval != want.Interval:
		p.reschedule(i, earlier(i.at, i.next(now)))
	}
}

// hurry says whether there are other documents than before that the adapter lacks. Those are sent at once.
func (i *instance) hurry(was Instance, now time.Time) (hurries bool) {
	for _, kind := range i.lagging() {
		if was.document(kind) != i.document(kind) {
			i.pushes[kind].fails, i.pushes[kind].at = 0, now
			hurries = true
		}
	}
	return hurries
}

// lost says whether the cluster no longer has the catalog that it had, and that is
// therefore not kept here.
func (i *instance) lost(had string) bool {
	catalog := i.result.Catalog
	return catalog != nil && catalog.Stored == nil && catalog.Summary.Catalog.Digest == had && had != i.Stored
}

// reschedule changes when an instance is asked, unless it is due or being asked.
func (p *Prober) reschedule(i *instance, at time.Time) {
	if i.state != queued {
		return
	}
	i.at = at
	if i.index >= 0 {
		heap.Remove(&p.queue, i.index)
	}
	p.enqueue(i)
}

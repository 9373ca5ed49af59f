package prober

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

const (
	// listsBits is how many lists one leader can number: of a list's generation, the bits below are the
	// count of the leader, and those above its term.
	listsBits = 30
	// betweenLists is the least time between two lists for one adapter. While pods come and go, the adapter gets the
	// last one of many.
	betweenLists = 250 * time.Millisecond
	// betweenLoads is the least time between two lists that differ in nothing but loads, for each pod of the server.
	// Each of n pods gets a list of n pods, so the lists of a large server would take more than all else.
	betweenLoads = 50 * time.Millisecond
	// loadSteps is how many parts of its limit a pod's load moves by before that alone is worth a list: one of so many.
	loadSteps = 10
	// renewal bounds the time between two requests to an adapter with a list, which counts for 30 s unless it is
	// renewed. Clients of a lost pod get 404 only when the manager has missed the pod, too: 20 s after their first
	// request at the latest, so there is no time for longer pauses.
	renewal = 10 * time.Second
	// termRetry is the time between two attempts to find out the term of this leader.
	termRetry = time.Second
)

// beginTerm finds out the term of this leader, and then lets adapters have lists of their servers' pods. Without
// a term that is higher than those before, adapters could not tell its lists from those of a former leader.
func (p *Prober) beginTerm(ctx context.Context) {
	if p.options.Term == nil {
		return
	}
	for {
		term, err := p.options.Term(ctx)
		if err == nil {
			p.mu.Lock()
			p.lists = term << listsBits
			for _, s := range p.servers {
				p.list(s, time.Now())
			}
			p.mu.Unlock()
			p.signal()
			return
		}
		if ctx.Err() != nil {
			return
		}
		p.options.Log.Error(err, "Cannot find out the term of this leader; adapters get no lists of pods meanwhile")
		select {
		case <-ctx.Done():
			return
		case <-time.After(termRetry):
		}
	}
}

// list gives the adapters of a server another list of its pods, if there is something new to tell.
func (p *Prober) list(s *server, now time.Time) {
	s.gone.forget(now)
	if p.lists == 0 || !s.needsList() {
		return
	}
	if s.hasNews(now) {
		p.lists++
		pods := s.listed()
		document, err := p.document(s, pods)
		if err != nil {
			p.options.Log.Error(err, "Cannot make a list of pods", "MCPServer", klog.KRef(s.name.Namespace, s.name.Name), "pods", len(pods))
			return
		}
		s.pods, s.peers, s.listedAt = pods, document, now
	}
	for _, i := range s.instances {
		if i.Peers == s.peers {
			continue
		}
		i.Peers = s.peers
		if i.lags(peersDocument) {
			sending := &i.pushes[peersDocument]
			sending.fails, sending.at = 0, later(now, i.listedAt.Add(betweenLists))
			p.reschedule(i, earlier(i.at, sending.at))
		}
	}
}

// document makes the list of a server's pods. If there are too many for one list, it has those that have to be told how
// to go on, and of the others those with the lowest UIDs: always the same, and as good as any for a new session.
func (p *Prober) document(s *server, pods []adapterapi.PeerPod) (adapterapi.Document, error) {
	whole := adapterapi.Peers{Version: adapterapi.PeersVersion, Generation: p.lists, Pods: pods, Gone: s.gone.uids()}
	list, err := whole.Fit()
	if err != nil || !list.Partial {
		return encoded(list, err)
	}
	whole.Pods = slices.Clone(pods)
	slices.SortStableFunc(whole.Pods, func(a, b adapterapi.PeerPod) int { return cmp.Compare(urgency(b), urgency(a)) })
	list, err = whole.Fit()
	if !s.crowded {
		s.crowded = true
		p.options.Log.Info("A server has more pods than a list of pods has room for; the others are found by the ids of their sessions, and get fewer new sessions",
			"MCPServer", klog.KRef(s.name.Namespace, s.name.Name), "pods", len(pods), "listed", len(list.Pods))
	}
	return encoded(list, err)
}

func encoded(list adapterapi.Peers, err error) (adapterapi.Document, error) {
	if err != nil {
		return adapterapi.Document{}, err
	}
	return list.Encode()
}

// urgency orders pods for a list that has no room for all: those first that it tells something about themselves.
func urgency(pod adapterapi.PeerPod) int {
	switch {
	case pod.Closing, pod.DrainSeconds > 0:
		return 2
	case pod.Cordoned, pod.Terminating:
		return 1
	default:
		return 0
	}
}

// needsList says whether adapters get lists. A server that never had two pods at a time needs none, unless its pod
// has to be told how to end, or that the one before it is gone.
func (s *server) needsList() bool {
	if len(s.instances) == 0 {
		return false
	}
	if len(s.instances) > 1 || s.pods != nil || len(s.gone) > 0 {
		return true
	}
	for _, i := range s.instances {
		if i.DrainSeconds > 0 || i.Closing {
			return true
		}
	}
	return false
}

// hasNews says whether the last list is worth replacing. Loads change all the time, so those have to move, and some
// time has to pass.
func (s *server) hasNews(now time.Time) bool {
	if len(s.pods) != len(s.instances) {
		return true
	}
	moved := false
	for _, i := range s.instances {
		pod := i.peer()
		at, told := slices.BinarySearchFunc(s.pods, pod, byUID)
		if !told {
			return true
		}
		was := s.pods[at]
		moved = moved || loadMoved(was, pod)
		pod.Sessions, pod.Limit, pod.Spares = was.Sessions, was.Limit, was.Spares
		if pod != was {
			return true
		}
	}
	return moved && now.Sub(s.listedAt) >= betweenLoads*time.Duration(len(s.pods))
}

// listed are the pods of the server, in the order of their UIDs.
func (s *server) listed() []adapterapi.PeerPod {
	pods := make([]adapterapi.PeerPod, 0, len(s.instances))
	for _, i := range s.instances {
		pods = append(pods, i.peer())
	}
	slices.SortFunc(pods, byUID)
	return pods
}

func byUID(a, b adapterapi.PeerPod) int { return strings.Compare(a.UID, b.UID) }

// peer is what other pods of the server need to know of an instance.
func (i *instance) peer() adapterapi.PeerPod {
	return adapterapi.PeerPod{
		UID: string(i.UID), Address: i.Address, Zone: i.Zone,
		Ready: i.Ready, Verified: i.Ready && i.result.Outcome == Verified, Newest: i.Newest,
		Cordoned: i.Cordoned, Terminating: i.Terminating, DrainSeconds: i.DrainSeconds, Closing: i.Closing,
		Doubted: i.askFails > 0, Sessions: i.result.Sessions.Open, Limit: i.result.Sessions.Limit, Spares: i.result.Sessions.Spares,
	}
}

// loadMoved says whether other pods should know of a pod's new load: it has moved by a tenth of the limit, or to or
// from none or the limit, or the pod has got its first spare or lost the last one.
func loadMoved(was, is adapterapi.PeerPod) bool {
	by := is.Sessions - was.Sessions
	isFull := func(sessions int64) bool { return is.Limit > 0 && sessions >= is.Limit }
	return was.Limit != is.Limit || (was.Spares == 0) != (is.Spares == 0) ||
		(was.Sessions == 0) != (is.Sessions == 0) || isFull(was.Sessions) != isFull(is.Sessions) ||
		is.Limit > 0 && max(by, -by)*loadSteps >= is.Limit
}

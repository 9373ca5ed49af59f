package prober

import (
	"context"
	"slices"
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
	// renewal bounds the time between two requests to an adapter with a list, which counts for 30 s unless it is
	// renewed.
	renewal = 20 * time.Second
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

// list gives the adapters of a server another list of its pods, if the list has changed. A server that never had two pods
// at a time needs none.
func (p *Prober) list(s *server, now time.Time) {
	if p.lists == 0 || len(s.instances) < 2 && s.pods == nil {
		return
	}
	pods := make([]adapterapi.PeerPod, 0, len(s.instances))
	for uid, i := range s.instances {
		pods = append(pods, adapterapi.PeerPod{UID: string(uid), Doubted: i.askFails > 0})
	}
	slices.SortFunc(pods, func(a, b adapterapi.PeerPod) int {
		if a.UID < b.UID {
			return -1
		}
		return 1
	})
	if !slices.Equal(pods, s.pods) {
		p.lists++
		document, err := adapterapi.Peers{Version: adapterapi.PeersVersion, Generation: p.lists, Pods: pods}.Encode()
		if err != nil || len(document.Text) > adapterapi.MaxPeersBytes {
			p.options.Log.Error(err, "Cannot make a list of pods", "MCPServer", klog.KRef(s.name.Namespace, s.name.Name), "pods", len(pods))
			return
		}
		s.pods, s.peers = pods, document
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

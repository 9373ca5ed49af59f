package peer

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// PlacerOptions configure a Placer.
type PlacerOptions struct {
	Router *Router
	List   *roster.Roster
	// Leaving closes when this pod begins to go away.
	Leaving <-chan struct{}
	// Patience is how long a client waits for a slot, here or elsewhere.
	Patience time.Duration
	// Starts says how soon a session has its process at this pod.
	Starts func() Starts
	// Works reports whether a session that begins at this pod has a server.
	Works func() bool
}

// Starts says how soon a session has its process: there may be a spare one, or else it takes the time of a start, which
// is 0 if that is not known, or if sessions have no processes of their own.
type Starts struct {
	Spares int
	Time   time.Duration
}

// slowStart is how long the start of a process takes that costs a client more than a hop to a pod with a spare one.
const slowStart = 300 * time.Millisecond

// Placer decides where new sessions begin: here or at another pod. It is the edge.Placer of the port for clients.
type Placer struct {
	options PlacerOptions
	loads   loads
	placed  [placings]atomic.Uint64
}

// Placing is what became of a client that wanted a session.
type Placing uint8

// The placings.
const (
	Here    Placing = iota // its session began at this pod, or failed to
	Peer                   // another pod answered it
	Refused                // it got no slot
	placings
)

// Placings returns all placings.
func Placings() []Placing { return []Placing{Here, Peer, Refused} }

// String is the value of a metric's label.
func (p Placing) String() string { return [...]string{"here", "peer", "refused"}[p] }

// NewPlacer returns a Placer.
func NewPlacer(options PlacerOptions) *Placer { return &Placer{options: options} }

// Placed counts the clients that wanted a session.
func (p *Placer) Placed(what Placing) uint64 { return p.placed[what].Load() }

// Cordoned reports whether the manager says that new sessions should begin at other pods.
func (p *Placer) Cordoned() bool {
	entry, counts := p.options.List.Entry(p.options.Router.options.Self.UID)
	return counts && entry.Cordoned
}

// Place implements edge.Placer. The manager's probe asks about this pod.
func (p *Placer) Place(w http.ResponseWriter, r *edge.Request, in *session.Registry) (*session.Slot, error) {
	if r.Caller.Probe {
		return in.Reserve(r.Context(), &r.Caller)
	}
	n := newcomer{placer: p, w: w, r: r, in: in, until: time.Now().Add(p.options.Patience)}
	slot, err := n.find()
	switch {
	case slot != nil:
		p.placed[Here].Add(1)
	case err != nil:
		p.placed[Refused].Add(1)
	}
	return slot, err
}

// standing is that of this pod. It does not say whether there is a free slot: only an attempt to take it does.
func (p *Placer) standing() standing {
	self := standing{newest: true}
	if entry, has := p.options.List.Entry(p.options.Router.options.Self.UID); has {
		self = standing{avoided: entry.Cordoned || entry.Terminating, newest: entry.Newest, zone: entry.Zone}
	}
	select {
	case <-p.options.Leaving:
		self.avoided = true
	default:
	}
	self.broken = !p.options.Works()
	starts := p.options.Starts()
	self.slow = starts.Spares == 0 && starts.Time > slowStart
	return self
}

// others are the pods that may take a session now.
func (p *Placer) others() []other {
	candidates := p.options.List.Candidates(p.options.Router.options.Self.UID)
	left := candidates[:0]
	for i := range candidates {
		if p.options.Router.mayTry(candidates[i].Owner.UID) {
			left = append(left, candidates[i])
		}
	}
	return p.loads.of(left, time.Now())
}

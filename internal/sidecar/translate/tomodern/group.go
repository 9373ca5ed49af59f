package tomodern

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

// group has the processes for clients that may share some and have the same capabilities. It
// is no mux.Supervisor, which has one process: each call that may ask for input has one of its
// own.
type group struct {
	groupKey

	server   *Server
	caller   *caller.Caller // the first of them
	shareKey string         // the address whose share these processes count in

	// Guarded by the server's mutex.
	users            int        // requests that are looking for a process
	askers           int        // of these, those whose call may ask for input
	processes        []*process // oldest first
	starts           []*start   // under way
	listens          map[*listen]struct{}
	topics           map[string]*topic // by the resource's URI
	topicBytes       int               // of these, as they are sent
	subscriber       *process          // has the subscriptions
	subscribedSince  time.Time
	shortSubscribers int                   // in a row that did not last
	taskTools        toolindex.Index[bool] // those that can only be called as tasks; has its own lock
	lastUsed         time.Time
}

type groupKey struct {
	callers      string // that may share processes
	capabilities capabilities
}

// Group names the callers for whom the Server keeps processes, among them the one of the request. It is alike at all
// instances, and empty for a request that no process gets.
func (s *Server) Group(request session.Message) string {
	if isAboutTask(string(request.Envelope.Method)) {
		return ""
	}
	meta, err := rpc.Find(request.Bytes, request.Envelope.Meta, rpc.MetaClientCapabilities)
	if err != nil {
		return ""
	}
	c, err := capabilitiesOf(request.Bytes, meta[0], s.options.OfferRoots)
	if err != nil {
		return ""
	}
	return groupKey{request.From.Group(), c}.name()
}

// name costs no more than one allocation: each request needs it.
func (k groupKey) name() string {
	c, kinds := &k.capabilities, [...]byte{'-', '-', '-', '-', '-', '-'}
	for i, has := range [len(kinds)]bool{c.form, c.url, c.sampling, c.samplingTools, c.samplingContext, c.roots} {
		if has {
			kinds[i] = '+'
		}
	}
	return string(kinds[:]) + k.callers
}

// errCapabilities says why a request is not taken, in words for its client.
var errCapabilities = fmt.Errorf("%w: this client uses the server with as many different capabilities as it may; one set is free when its calls are over and answered", fault.ErrBusy)

// join returns the group of a client. The code that calls it must call leave.
func (s *Server) join(from *caller.Caller, c capabilities) (*group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.busy(fault.ErrDraining)
	}
	key := groupKey{from.Group(), c}
	g := s.groups[key]
	if g == nil {
		if !s.roomForGroupLocked(key.callers) {
			return nil, s.busy(errCapabilities)
		}
		g = &group{
			groupKey: key, server: s, caller: from.Lasting(), shareKey: from.ShareKey(),
			listens: map[*listen]struct{}{}, topics: map[string]*topic{},
		}
		s.groups[key] = g
	}
	g.users++
	return g, nil
}

func (g *group) leave() {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	g.users--
	g.lastUsed = time.Now()
	g.tidyLocked()
}

// tidyLocked forgets a group that has nothing.
func (g *group) tidyLocked() {
	if len(g.processes) == 0 && g.idleLocked() && g.server.groups[g.groupKey] == g {
		delete(g.server.groups, g.groupKey)
	}
}

func (g *group) idleLocked() bool {
	return g.users == 0 && len(g.starts) == 0 && len(g.listens) == 0 && !slices.ContainsFunc(g.processes, (*process).usedLocked)
}

// roomForGroupLocked says whether callers that share processes may have one more group. The
// one that was idle for longest makes room.
func (s *Server) roomForGroupLocked(callers string) bool {
	groups := slices.DeleteFunc(slices.Collect(maps.Values(s.groups)), func(g *group) bool { return g.callers != callers })
	if len(groups) < s.options.Limits.KeysPerPrincipal {
		return true
	}
	idle := slices.DeleteFunc(groups, func(g *group) bool { return !g.idleLocked() })
	if len(idle) == 0 {
		return false
	}
	oldest := slices.MinFunc(idle, func(a, b *group) int { return a.lastUsed.Compare(b.lastUsed) })
	for _, p := range slices.Clone(oldest.processes) {
		s.metrics.Evictions.Inc()
		p.dismissLocked(errEvicted)
	}
	return true
}

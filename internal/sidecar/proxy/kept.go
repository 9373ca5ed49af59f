package proxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// The server keeps its sessions when the adapter restarts. The id of a session has all that another adapter process in the same
// pod needs to go on with it. The server is the authority: it answers 404 for a session that it has forgotten.

// Keeper makes and reads ids of sessions that outlive the adapter.
type Keeper interface {
	MintKept(session *sessionid.Kept) (string, bool)
	ParseKept(id string) (sessionid.Kept, error)
}

// former are the sessions of former processes of the adapter in this pod.
type former struct {
	process [16]byte // this one

	mu       sync.Mutex
	reviving map[string]*revival // by id
	ended    map[[sha256.Size]byte]struct{}
	order    [][sha256.Size]byte // of ended, oldest first
}

// revival is an attempt to make a session again, for all requests in it that come meanwhile.
type revival struct {
	over chan struct{} // closed once err is set
	err  error         // nil if the session is there
}

// mostEnded bounds the sessions of former processes that are known to have ended. The server has been told of each, so one
// that is forgotten does not come back.
const mostEnded = 4096

func newFormer() *former {
	f := &former{reviving: map[string]*revival{}, ended: map[[sha256.Size]byte]struct{}{}}
	_, _ = rand.Read(f.process[:]) // never fails
	return f
}

// mintID makes the id of a session. It is one that outlives this process, if it can be.
func (p *Proxy) mintID(opened *proxySession, from *caller.Caller) string {
	if p.Keeper != nil && !from.Probe {
		id, ok := p.Keeper.MintKept(&sessionid.Kept{
			Owner: p.Owner, Process: p.former.process, Principal: markOf(from), Began: opened.Began, Revision: opened.Revision, ServerID: opened.serverID,
		})
		if ok {
			return id
		}
	}
	return p.MintID()
}

func markOf(c *caller.Caller) [16]byte {
	digest := c.PrincipalDigest()
	return [16]byte(digest[:16])
}

// keptIn returns the session of the caller that a request names, if a former process of the adapter in this pod had it.
func (p *Proxy) keptIn(r *edge.Request, id string) (kept sessionid.Kept, ok bool) {
	if p.Keeper == nil || r.Caller.Probe {
		return kept, false
	}
	kept, err := p.Keeper.ParseKept(id)
	switch {
	case err != nil, kept.Owner.UID != p.Owner.UID, kept.Process == p.former.process, p.former.hasEnded(id), time.Since(kept.Began) >= p.MaxLifetime:
		return kept, false
	case kept.Principal != markOf(&r.Caller):
		r.NoteForeign()
		return kept, false
	}
	return kept, true
}

// comesBack reports whether find would make again the session that a request names.
func (p *Proxy) comesBack(r *edge.Request, id string) bool {
	_, ok := p.keptIn(r, id)
	return ok
}

// find returns the session that a request names. If a former process of the adapter had it, and the server may have it
// still, find makes it again, which takes a place as any session does. The error is errUnknown if there is none.
func (p *Proxy) find(r *edge.Request, id string) (*proxySession, error) {
	for {
		if found, ok := p.Sessions.Find(id).(*proxySession); ok {
			return found, nil
		}
		kept, ok := p.keptIn(r, id)
		if !ok {
			return nil, errUnknown
		}
		attempt, first := p.former.begin(id)
		if first {
			return p.revive(r, id, &kept, attempt)
		}
		select {
		case <-attempt.over:
			if errors.Is(attempt.err, places.ErrFull) { // this request would wait for as long as that one did
				return nil, attempt.err
			}
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
	}
}

// begin returns the attempt to make a session again, and whether the caller is the first, who makes it.
func (f *former) begin(id string) (attempt *revival, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if running := f.reviving[id]; running != nil {
		return running, false
	}
	attempt = &revival{over: make(chan struct{})}
	f.reviving[id] = attempt
	return attempt, true
}

func (f *former) finish(id string, attempt *revival, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.reviving, id)
	attempt.err = err
	close(attempt.over)
}

func (p *Proxy) revive(r *edge.Request, id string, kept *sessionid.Kept, attempt *revival) (revived *proxySession, err error) {
	defer func() { p.former.finish(id, attempt, err) }()
	if found, ok := p.Sessions.Find(id).(*proxySession); ok { // another request has been faster
		return found, nil
	}
	slot, err := p.Sessions.Reserve(r.Context(), &r.Caller)
	if err != nil {
		return nil, err
	}
	defer slot.Release()
	revived = p.newSession(kept.ServerID, kept.Revision, &r.Caller)
	revived.Owner = caller.FormerOwner(&r.Caller)
	revived.calls, revived.requests, revived.use = 0, 0, places.Worked
	if kept.Began.Before(revived.Began) { // the clock may have been set back
		revived.Began = kept.Began
	}
	revived.confirmed.Store(unconfirmed)
	revived.OnEnd(func() { p.former.end(id) })
	slot.Fill(r.Context(), id, revived)
	return revived, nil
}

// unconfirmed is before any outage of the server: it may have restarted together with the adapter.
const unconfirmed = -1

func (f *former) hasEnded(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, has := f.ended[sha256.Sum256([]byte(id))]
	return has
}

// end remembers that a session of a former process has ended.
func (f *former) end(id string) {
	digest := sha256.Sum256([]byte(id))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended[digest] = struct{}{}
	if f.order = append(f.order, digest); len(f.order) > mostEnded {
		delete(f.ended, f.order[0])
		f.order = slices.Delete(f.order, 0, 1)
	}
}

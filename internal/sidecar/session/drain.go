package session

import (
	"context"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
)

// Refuse begins a drain: the registry takes no new sessions, and no requests without one.
func (r *Registry) Refuse() {
	r.Places.Close(fault.ErrDraining)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain(fault.ErrDraining)
	r.checkEmptyLocked()
}

// Stay takes no new sessions, and leaves the others alone. It returns when the context ends, or when no session and no
// request is left.
func (r *Registry) Stay(ctx context.Context) {
	r.Refuse()
	select {
	case <-r.emptied:
	case <-ctx.Done():
	}
}

// Part ends the sessions that have no call in flight, one after the other and spread over the given time, so that their
// clients do not all come back at once. It leaves the rest to Drain: sessions with a call in flight, and all that are
// left when the context ends.
func (r *Registry) Part(ctx context.Context, spread time.Duration) {
	leaving := r.All()
	begin := time.Now()
	for i, session := range leaving {
		turn := begin.Add(spread * time.Duration(i) / time.Duration(len(leaving)))
		if !r.await(ctx, turn) {
			return
		}
		if !session.Busy() {
			session.End(fault.ErrDraining)
			r.parted = append(r.parted, session)
		}
	}
}

// await waits until the given time. It returns false if the context ends, or nothing is left to wait for.
func (r *Registry) await(ctx context.Context, until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-r.emptied:
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// Drain takes no new sessions, and ends each session once it has no call in flight. When the
// context ends, it ends all sessions. Drain returns when the adapter has told the servers of
// these sessions, and of those that Part has ended.
func (r *Registry) Drain(ctx context.Context) {
	r.Refuse()
	ticker := time.NewTicker(sweepInterval / 20)
	defer ticker.Stop()
	ended := r.parted
	defer func() {
		for _, session := range ended {
			<-session.Done()
		}
	}()
	end := func(all bool) {
		for _, session := range r.All() {
			if all || !session.Busy() {
				session.End(fault.ErrDraining)
				ended = append(ended, session)
			}
		}
	}
	for {
		end(false)
		select {
		case <-r.emptied:
			return
		case <-ctx.Done():
			r.stop(fault.ErrDraining)
			end(true)
			return
		case <-ticker.C:
		}
	}
}

package sidecar

import (
	"cmp"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// listSessions describes the sessions of clients, oldest first.
func (a *Adapter) listSessions() adapterapi.SessionList {
	members := a.env.Sessions.OfClients()
	slices.SortFunc(members, func(x, y session.Member) int {
		return cmp.Or(x.About().Began.Compare(y.About().Began), cmp.Compare(x.About().Number, y.About().Number))
	})
	now := time.Now()
	list := adapterapi.SessionList{Sessions: make([]adapterapi.SessionInfo, 0, len(members))}
	for _, member := range members {
		about, usage := member.About(), member.Usage()
		client := about.Client()
		used, _, _ := member.Idle()
		list.Sessions = append(list.Sessions, adapterapi.SessionInfo{
			Number: about.Number, Client: client.Name, ClientVersion: client.Version, Revision: legible(about.Revision),
			AgeSeconds: now.Sub(about.Began).Seconds(), IdleSeconds: max(0, now.Sub(used).Seconds()),
			Requests: usage.Requests, InFlight: usage.InFlight, HeldBytes: usage.Held,
		})
	}
	return list
}

// endSession ends the session of a client for a user of the cluster.
func (a *Adapter) endSession(number string) bool {
	member := a.env.Sessions.Numbered(number)
	if member == nil {
		return false
	}
	member.End(session.ErrUser)
	return true
}

// sessionIDs are the ids of the sessions of clients, for the manager to know which keys are in use. The sessions of an HTTP
// server outlive a restart of the adapter and come back with their next request, so for a while after it this adapter
// has one whose id it does not know.
func (a *Adapter) sessionIDs() []string {
	ids := a.env.Sessions.IDs()
	if a.env.Transport == config.StreamableHTTP && time.Since(a.began) < a.env.IdleTimeout {
		ids = append(ids, "")
	}
	return ids
}

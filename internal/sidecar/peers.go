package sidecar

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/handle"
	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/news"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/trust"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// peers is what connects an adapter with those in other pods of the same server.
type peers struct {
	trust     *trust.Trust
	relay     *relay.Relay
	router    *peer.Router
	placer    *peer.Placer
	roster    *roster.Roster
	news      *news.News
	newsRelay *relay.Relay // has the streams of news apart from what clients send
	self      [16]byte     // the UID of this pod
	log       logr.Logger
	server    *listener.Server // for requests that other pods pass on
}

func (a *Adapter) newPeers(routes map[string]edge.Route) *peers {
	c := &a.env.Config
	p := &peers{trust: trust.New(c.Keys.Ring, c.Owner.UID), self: c.Owner.UID, log: c.Log.WithName("peers")}
	p.relay = relay.New(relay.Options{Handshake: p.trust.Handshake, WriteTimeout: front.WriteTimeout, Dial: c.DialPeer, Limits: passed(c)})
	p.roster = roster.New()
	p.router = peer.New(peer.Options{
		Self: c.Owner, Parse: func(id string) (owner sessionid.Owner, returns bool, err error) {
			if kept, err := c.Keys.ParseKept(id); err == nil {
				return kept.Owner, true, nil
			}
			owner, err = c.Keys.Parse(id)
			return owner, false, err
		},
		State: func(r *edge.Request) (sessionid.Owner, bool) {
			message := &r.Messages[0]
			return handle.OwnerOf(c.Keys.States(), &r.Caller, message.Bytes, &message.Envelope)
		},
		Relay: p.relay, Standing: p.roster.Standing, Ready: p.roster.Ready, Next: p.roster.Next, Log: p.log,
	})
	p.placer = peer.NewPlacer(peer.PlacerOptions{
		Router: p.router, List: p.roster, Leaving: a.leaving, Patience: c.Patience,
		Starts: func() peer.Starts { return peer.Starts(a.backend.Starts()) }, Works: a.works,
	})
	p.newsRelay = relay.New(relay.Options{Handshake: p.trust.Handshake, WriteTimeout: front.WriteTimeout, Dial: c.DialPeer, Limits: news.Limits()})
	p.news = news.New(news.Options{
		Hub: a.backend.Changes(), Others: func() []sessionid.Owner { return p.roster.Others(p.self) }, Next: p.roster.Next,
		Relay: p.newsRelay, Memory: a.env.Memory, Log: p.log,
	})
	p.server = listener.NewServer(p.news.Handler(peer.Handler(a.peerDoor(routes))), c.Connections(), c.Log)
	p.server.MaxHeaderBytes *= peerHeaders
	return p
}

// passed are the limits of requests that this pod passes on. One client may have three fourths of the places to a pod, which
// is more than the pod has sessions.
func passed(c *config.Config) relay.Limits {
	return relay.Limits{
		Requests: max(relay.DefaultRequests, c.Connections()),
		Streams:  cmp.Or(c.PeerStreams, max(relay.DefaultStreams, c.Connections()/2)),
	}
}

// peerHeaders is how much longer the headers of another pod may be than those of a client. They have all that the client sends,
// and who it is, with all groups, besides.
const peerHeaders = 4

// peerDoor returns the handler of requests that other pods pass on. It passes none on itself, so that no request
// goes in circles. A drain does not close its connections: they are between pods, and no client can use another
// one instead.
func (a *Adapter) peerDoor(routes map[string]edge.Route) http.Handler {
	options := a.doorOptions(routes)
	guarded := *options.Authenticate.(*edge.Guarded)
	guarded.IsProbe, guarded.Vouched = nil, peer.Vouched
	options.Authenticate, options.Authorize = &guarded, &guarded
	options.Place = &peer.Guests{Load: a.load, Works: a.works}
	return edge.New(options)
}

// load is how full this pod is.
func (a *Adapter) load() peer.Load {
	return peer.Load{Sessions: int64(a.env.Sessions.Places.Taken()), Limit: int64(a.env.MaxSessions), Spares: int64(a.backend.Starts().Spares)}
}

// works reports whether a session that begins at this pod has a server. The server's container may have ended a moment ago:
// the kubelet waits up to 5 minutes before it starts it again.
func (a *Adapter) works() bool {
	if a.env.Transport == config.Stdio {
		return a.container == nil || a.container.Connected() // the keeper learns it later
	}
	state, _ := a.env.Keeper.State()
	return state.Ready
}

// cordonCheck is how soon a cordon that the manager does not renew is found to be over, after its lease.
const cordonCheck = 10 * time.Second

// rest has the backend keep no spares while this pod is cordoned: no session comes for them, unless all other pods are
// full.
func (p *peers) rest(ctx context.Context, rest func(rests bool)) {
	rests := false
	for ctx.Err() == nil {
		another := p.roster.Next() // before the list is read, so that none is missed
		if cordoned := p.placer.Cordoned(); cordoned != rests {
			rests = cordoned
			rest(rests)
		}
		var lapsed <-chan time.Time
		if rests {
			lapsed = time.After(cordonCheck)
		}
		select {
		case <-ctx.Done():
		case <-another:
		case <-lapsed:
		}
	}
}

// serve serves other pods until close.
func (p *peers) serve(l net.Listener) error {
	return p.server.ServeWithin(l, func(l net.Listener) net.Listener { return trust.Listen(l, p.trust, p.log) })
}

// drain ends the streams that this pod passes on, and has the drain end when the manager says. The function that it
// returns waits for the calls that this pod passes on.
func (p *peers) drain(d *drainTime) (wait func()) {
	p.router.Drain()
	another := p.roster.Next() // before the list is read, so that none is missed
	d.obey(p.roster.Ending(p.self))
	go func() {
		for {
			select {
			case <-another:
			case <-d.over.Done():
				return
			}
			another = p.roster.Next()
			if d.obey(p.roster.Ending(p.self)) {
				p.log.Info("The manager has the drain end earlier", "timeout", d.String(), "waitsForCallsOnly", d.part.Err() != nil)
			}
		}
	}()
	return func() { p.router.Drained(d.over) }
}

// close lets the last answers to other pods arrive, and closes the connections to them.
func (p *peers) close(ctx context.Context) error {
	if p == nil {
		return nil
	}
	defer p.relay.Close()
	defer p.newsRelay.Close()
	ctx, cancel := context.WithTimeout(ctx, listener.HeaderTimeout)
	defer cancel()
	return p.server.Shutdown(ctx)
}

package sidecar

import (
	"maps"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/sse"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/streamable"
	"github.com/slipway-mcp/slipway/internal/sidecar/option"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
)

// Path is where MCP clients connect.
const Path = "/mcp"

// door returns the handler of the port for clients: one way in, and behind it a front end for
// each path.
func (a *Adapter) door(routes map[string]edge.Route) *edge.Door {
	options := a.doorOptions(routes)
	options.Closing = a.leaving
	if a.peers != nil {
		options.Locate, options.Place = a.peers.router, a.peers.placer
	}
	return edge.New(options)
}

// doorOptions are those of every port at which requests of clients arrive.
func (a *Adapter) doorOptions(routes map[string]edge.Route) edge.Options {
	c := &a.env.Config
	guarded := &edge.Guarded{Gate: c.Access, IsProbe: c.Keys.IsProbe, Audit: a.auditor}
	return edge.Options{
		Admit: &edge.Origins{
			Policy: c.Settings.Origins, Names: origin.Names{Hosts: c.Names.Of(option.AllowedHosts), Origins: c.Names.Of(option.AllowedOrigins)},
		},
		Authenticate: guarded,
		Authorize:    guarded,
		Budget:       a.bodies,
		Routes:       routes,
		Elsewhere:    a.elsewhere,
		Metrics:      a.requests,
		Refusals:     &edge.Refusals{Log: c.Log},
		Audit:        a.auditor,
		Closed:       c.Recorded,
	}
}

// routes are the front ends by their paths.
func (a *Adapter) routes() map[string]edge.Route {
	c := &a.env.Config
	routes := a.backend.Routes(Path, streamable.New(streamable.Options{
		Sessions: a.env.Sessions, Open: a.backend.Open, MintID: a.env.MintID, Stateless: a.backend.ServeStateless,
		OpenTimeout: c.StartTimeout, WriteTimeout: front.WriteTimeout, KeepAlive: front.KeepAliveInterval, Retry: streamable.Retry,
	}))
	routes[Path] = introducing(routes[Path])
	a.publishMetadata(routes)
	if c.LegacySSE {
		legacy := sse.New(sse.Options{
			Sessions: a.env.Sessions, Open: a.backend.Open, MintToken: a.env.MintID, PostTo: sse.MessagesPath,
			OpenTimeout: c.StartTimeout, WriteTimeout: front.WriteTimeout, KeepAlive: front.KeepAliveInterval,
		}).Routes()
		legacy[sse.StreamPath] = namingAgent(legacy[sse.StreamPath])
		legacy[sse.MessagesPath] = a.logInitialize(legacy[sse.MessagesPath])
		maps.Copy(routes, legacy)
	}
	return routes
}

// elsewhere answers requests for any other path with the path of the server.
func (a *Adapter) elsewhere(w http.ResponseWriter, r *http.Request) {
	if document, ok := a.env.Access.Metadata(r.URL.EscapedPath(), r.Host); ok { // of a resource with another path
		writeMetadata(w, r, document)
		return
	}
	text := "there is nothing at " + rpc.Clip(r.URL.EscapedPath()) + ": the MCP endpoint is " + Path
	switch path := r.URL.Path; {
	case a.env.LegacySSE:
		text += ", and " + sse.StreamPath + " for clients that know only that transport"
	case path == sse.StreamPath || path == sse.MessagesPath:
		text += "; clients that know only the transport of " + sse.StreamPath + " are served with " + a.env.Names.Of(option.LegacySSE)
	}
	front.RefusePlain(w, http.StatusNotFound, text)
}

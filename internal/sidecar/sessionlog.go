package sidecar

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// logSession logs the beginning and the end of a session. The manager opens one with each
// probe, which the log has only at a higher verbosity.
func (a *Adapter) logSession(ctx context.Context, opened session.Member) {
	begin, about := time.Now(), opened.About()
	client, _ := ctx.Value(introductionKey{}).(introduction)
	agent, _ := ctx.Value(agentKey{}).(string)
	level := 0
	if client.probe {
		level = 1
	}
	says := []any{"session", about.Number}
	if client != (introduction{}) { // clients of 2024-11-05 send initialize later
		about.Introduce(session.Client{Name: client.name, Version: client.version})
		says = append(says, "client", client.name, "clientVersion", client.version, "revision", legible(about.Revision))
	}
	a.env.Log.V(level).Info("Session opened", says...)
	if !client.probe {
		a.auditor.SessionBegan(about, agent)
	}
	opened.OnEnd(func() {
		if !client.probe {
			a.auditor.SessionEnded(about, agent)
		}
		lasted, reason := time.Since(begin), opened.EndedBy()
		a.env.Log.V(1).Info("Session ended", "session", about.Number, "reason", fault.Brief(reason), "lasted", lasted.Round(time.Millisecond).String())
		a.requests.SessionEnded(about.Revision, lasted, reason)
	})
	if !client.probe && !a.env.Access.Keeps(about.Owner.Identity()) { // the rules have changed since its client asked for it
		opened.End(access.ErrRevoked)
	}
}

// introduction is how the client of a session describes itself in initialize.
type introduction struct {
	name, version string
	revision      string // that it asks for
	probe         bool   // it is the manager
}

// introductionIn reads the message of a request. It returns false if that is not initialize.
func introductionIn(r *edge.Request) (introduction, bool) {
	if len(r.Messages) != 1 || r.Messages[0].Envelope.Kind != rpc.Request || string(r.Messages[0].Envelope.Method) != "initialize" {
		return introduction{}, false
	}
	var message struct {
		Params struct {
			ProtocolVersion string `json:"protocolVersion"`
			ClientInfo      struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"clientInfo"`
		} `json:"params"`
	}
	// The server refuses a message with members of other types.
	_ = json.Unmarshal(r.Messages[0].Bytes, &message)
	client := message.Params.ClientInfo
	return introduction{legible(client.Name), legible(client.Version), legible(message.Params.ProtocolVersion), r.Caller.Probe}, true
}

// legible is a text of a client or a server, for the log.
func legible(text string) string { return rpc.Legible(text, 64) }

type introductionKey struct{}

// introducing puts the client's introduction into the context in which the route opens a
// session. It reads messages with initialize only.
func introducing(route edge.Route) edge.Route {
	serve := route.Serve
	route.Serve = func(w http.ResponseWriter, r *edge.Request) {
		if client, ok := introductionIn(r); ok {
			r.Request = r.WithContext(context.WithValue(withAgent(r), introductionKey{}, client))
		}
		serve(w, r)
	}
	return route
}

type agentKey struct{}

// agentBytes is how much of a User-Agent the adapter keeps as long as the session.
const agentBytes = 512

// withAgent puts the User-Agent into the context in which a session is opened.
func withAgent(r *edge.Request) context.Context {
	agent := r.Head("User-Agent")
	return context.WithValue(r.Context(), agentKey{}, strings.Clone(agent[:min(len(agent), agentBytes)]))
}

// namingAgent does so for a route whose requests all open sessions.
func namingAgent(route edge.Route) edge.Route {
	serve := route.Serve
	route.Serve = func(w http.ResponseWriter, r *edge.Request) {
		r.Request = r.WithContext(withAgent(r))
		serve(w, r)
	}
	return route
}

// logInitialize logs the introduction of a client whose session is open already: clients of
// 2024-11-05 connect first.
func (a *Adapter) logInitialize(route edge.Route) edge.Route {
	serve := route.Serve
	route.Serve = func(w http.ResponseWriter, r *edge.Request) {
		client, ok := introductionIn(r)
		serve(w, r)
		if ok && r.Record.Session != "" && r.Record.Status == http.StatusAccepted {
			if opened := a.env.Sessions.Numbered(r.Record.Session); opened != nil {
				opened.About().Introduce(session.Client{Name: client.name, Version: client.version})
			}
			a.env.Log.Info("Session initialized", "session", r.Record.Session, "client", client.name, "clientVersion", client.version, "asksFor", client.revision)
		}
	}
	return route
}

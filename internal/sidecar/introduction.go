package sidecar

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
)

// introduction is what the client of a session says of itself in initialize.
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
	// A message that has something else there is for the server to refuse.
	_ = json.Unmarshal(r.Messages[0].Bytes, &message)
	client := message.Params.ClientInfo
	return introduction{shown(client.Name), shown(client.Version), shown(message.Params.ProtocolVersion), r.Caller.Probe}, true
}

// shown is a text that a client or a server has chosen, for the log.
func shown(text string) string { return rpc.Legible(text, 64) }

type introductionKey struct{}

// introducing has the code that opens a session know the client's introduction. The
// message is read for initialize only.
func introducing(route edge.Route) edge.Route {
	serve := route.Serve
	route.Serve = func(w http.ResponseWriter, r *edge.Request) {
		if client, ok := introductionIn(r); ok {
			r.Request = r.WithContext(context.WithValue(r.Context(), introductionKey{}, client))
		}
		serve(w, r)
	}
	return route
}

func introductionOf(ctx context.Context) introduction {
	client, _ := ctx.Value(introductionKey{}).(introduction)
	return client
}

// logInitialize logs the introduction of a client whose session is open already: clients of
// 2024-11-05 connect first.
func (a *Adapter) logInitialize(route edge.Route) edge.Route {
	serve := route.Serve
	route.Serve = func(w http.ResponseWriter, r *edge.Request) {
		client, ok := introductionIn(r)
		serve(w, r)
		if ok && r.Record.Session != "" && r.Record.Status == http.StatusAccepted {
			a.config.Log.Info("Session initialized", "session", r.Record.Session, "client", client.name, "clientVersion", client.version, "asksFor", client.revision)
		}
	}
	return route
}

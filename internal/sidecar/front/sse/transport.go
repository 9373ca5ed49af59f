// Package sse serves the HTTP+SSE transport of protocol revision 2024-11-05, for clients that
// know no newer transport. It has two URLs: a GET of the first opens an event stream, and
// clients POST their messages to the second.
//
// Each event stream is a session. Its server starts when the client connects, and ends when the
// client disconnects. The client gets all answers on that stream, and cannot resume it.
package sse

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// The paths of the two URLs.
const (
	StreamPath   = "/sse"
	MessagesPath = "/messages"
)

const tokenParameter = "token"

// Options configure a Transport.
type Options struct {
	Sessions *session.Registry

	// Open starts a server for a new session, or connects to one. Clients see its errors.
	// The session ends when its server ends.
	Open func(ctx context.Context, from *caller.Caller) (*session.Session, error)
	// MintToken makes the token that a client sends with each POST. Other clients must
	// not be able to guess it. It must contain no characters that URLs escape.
	MintToken func() string
	// PostTo is the path in the endpoint event, to which clients send their messages.
	PostTo string

	OpenTimeout  time.Duration // for a server to start
	WriteTimeout time.Duration // for a client to read what the adapter writes
	KeepAlive    time.Duration // between comments on a silent connection
}

// Transport is the pair of URLs.
type Transport struct {
	Options

	mu          sync.Mutex
	connections map[string]*connection // by token
}

// New returns a Transport without connections.
func New(options Options) *Transport {
	return &Transport{Options: options, connections: map[string]*connection{}}
}

// Routes returns the routes of the two URLs.
func (t *Transport) Routes() map[string]edge.Route {
	return map[string]edge.Route{
		StreamPath:   {Methods: http.MethodGet, Serve: t.serveStream, Check: only(http.MethodGet)},
		MessagesPath: {Methods: http.MethodPost, Serve: t.serveMessages, Missing: t.missing, Check: only(http.MethodPost)},
	}
}

// only returns a check that refuses all HTTP methods but one.
func only(method string) func(w http.ResponseWriter, r *edge.Request) bool {
	return func(w http.ResponseWriter, r *edge.Request) bool {
		r.Record.Front = edge.HTTPAndSSE
		if r.Method != method {
			w.Header().Set("Allow", method)
			front.Refuse(w, http.StatusMethodNotAllowed, nil, rpc.CodeInvalidRequest, "this URL takes "+method+" only")
			return false
		}
		return true
	}
}

// missing returns the token of a message whose connection this instance does not have.
func (t *Transport) missing(r *edge.Request) string {
	token := r.URL.Query().Get(tokenParameter)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.connections[token] != nil {
		return ""
	}
	return token
}

// find returns the connection that an HTTP request names, if it belongs to the caller. If it
// returns false it has answered the HTTP request.
func (t *Transport) find(w http.ResponseWriter, r *edge.Request) (*connection, bool) {
	token := r.URL.Query().Get(tokenParameter)
	if token == "" {
		front.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, "the "+tokenParameter+" is missing: post to the URL in the endpoint event, as it stands there")
		return nil, false
	}
	t.mu.Lock()
	found, ok := t.connections[token]
	t.mu.Unlock()
	if !ok || !found.session.Owner.Is(&r.Caller) {
		if ok {
			r.NoteForeign()
		}
		front.Refuse(w, http.StatusNotFound, nil, rpc.CodeInvalidRequest, noConnection)
		return nil, false
	}
	r.Record.Session, r.Record.Revision = found.session.Number, edge.KnownRevision(found.revision())
	return found, true
}

const noConnection = "no such connection: it has ended or never was; connect again"

func (t *Transport) add(token string, c *connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.connections[token] = c
}

func (t *Transport) remove(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.connections, token)
}

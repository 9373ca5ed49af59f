// Package legacysse serves the HTTP+SSE transport of protocol revision 2024-11-05,
// for clients that know no newer one: a URL to listen at and a URL to post to.
//
// A connection to the first is a session. Its server starts when the client
// connects and ends when the client goes; there is no coming back. Whatever the
// client posts, all answers arrive on that connection.
package legacysse

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Where clients expect the two URLs.
const (
	StreamPath   = "/sse"
	MessagesPath = "/messages"
)

const tokenParameter = "token"

// Options are what a Transport needs and how it behaves.
type Options struct {
	Sessions *session.Registry
	Origins  origin.Source

	// Open starts a server for a new session, or connects to one; its errors are
	// shown to clients. The session is ended by whoever notices first that the
	// server has.
	Open func(ctx context.Context) (*session.Session, error)
	// MintToken makes what a client shows to post to its connection. Nobody else
	// may be able to guess it, and it must need no escapes in a URL.
	MintToken func() string
	// PostTo is the path that clients are told to post to.
	PostTo string

	BodyBytes    int64         // largest body taken
	OpenTimeout  time.Duration // for a server to start
	ReadTimeout  time.Duration // for a client to send the next 64 KiB of its body, or the rest; 0 waits for ever
	WriteTimeout time.Duration // for a client to read what it is sent
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

// admit says whether a request may come from where it does and has the method. If
// not it has answered the request.
func (t *Transport) admit(w http.ResponseWriter, r *http.Request, method string) bool {
	if !frontend.Admit(w, r, t.Origins.Now(), method) {
		return false
	}
	if r.Method != method {
		w.Header().Set("Allow", method)
		frontend.Refuse(w, http.StatusMethodNotAllowed, nil, rpc.CodeInvalidRequest, "this URL takes "+method+" only")
		return false
	}
	return true
}

// find returns the connection that a request names. If there is none it has
// answered the request.
func (t *Transport) find(w http.ResponseWriter, r *http.Request) (*connection, bool) {
	token := r.URL.Query().Get(tokenParameter)
	if token == "" {
		frontend.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, "the "+tokenParameter+" is missing: post to the URL in the endpoint event, as it stands there")
		return nil, false
	}
	t.mu.Lock()
	found, ok := t.connections[token]
	t.mu.Unlock()
	if !ok {
		failEnded(w)
	}
	return found, ok
}

func failEnded(w http.ResponseWriter) {
	frontend.Refuse(w, http.StatusNotFound, nil, rpc.CodeInvalidRequest, "no such connection: it has ended or never was; connect again")
}

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

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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/wire"
)

// Where clients expect the two URLs.
const (
	StreamPath   = "/sse"
	MessagesPath = "/messages"
)

const (
	tokenParameter = "token"

	typeJSON   = "application/json"
	typeEvents = "text/event-stream"
)

// Options are what a Transport needs and how it behaves.
type Options struct {
	Sessions *session.Registry
	Origins  origin.Policy

	// Open starts a server for a new session. The session is ended by whoever
	// notices first that the server has.
	Open func(ctx context.Context) (*session.Session, error)
	// MintToken makes what a client shows to post to its connection. Nobody else
	// may be able to guess it, and it must need no escapes in a URL.
	MintToken func() string
	// PostTo is the path that clients are told to post to.
	PostTo string

	BodyBytes    int64         // largest body taken
	OpenTimeout  time.Duration // for a server to start
	SendTimeout  time.Duration // for a server to read what it is sent
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
	if err := t.Origins.Check(r); err != nil {
		fail(w, http.StatusForbidden, wire.CodeInvalidRequest, err.Error())
		return false
	}
	if r.Method != method {
		w.Header().Set("Allow", method)
		fail(w, http.StatusMethodNotAllowed, wire.CodeInvalidRequest, "this URL takes "+method+" only")
		return false
	}
	return true
}

// find returns the connection that a request names. If there is none it has
// answered the request.
func (t *Transport) find(w http.ResponseWriter, r *http.Request) (*connection, bool) {
	token := r.URL.Query().Get(tokenParameter)
	if token == "" {
		fail(w, http.StatusBadRequest, wire.CodeInvalidRequest, "the "+tokenParameter+" is missing: post to the URL in the endpoint event, as it stands there")
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
	fail(w, http.StatusNotFound, wire.CodeInvalidRequest, "no such connection: it has ended or never was; connect again")
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

// fail answers with an HTTP error and a JSON-RPC error that names no request: the
// answers to requests arrive elsewhere.
func fail(w http.ResponseWriter, status, code int, text string) {
	body := appendError(nil, nil, code, text, nil)
	header := w.Header()
	header.Set("Content-Type", typeJSON)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client is told, or gone
}

// unavailable answers that another try may succeed.
func unavailable(w http.ResponseWriter, text string) {
	w.Header().Set("Retry-After", "1")
	fail(w, http.StatusServiceUnavailable, session.CodeInternal, text)
}

// appendError appends a response with an error, and with an id and data if there
// are any.
func appendError(dst, id []byte, code int, text string, data []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if len(id) > 0 {
		dst = append(append(dst, `,"id":`...), id...)
	}
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, `,"message":`...)
	dst = wire.AppendString(dst, text)
	if data != nil {
		dst = append(append(dst, `,"data":`...), data...)
	}
	return append(dst, "}}"...)
}

// acceptsEvents says whether the Accept headers allow an event stream. A client
// that sends none takes anything.
func acceptsEvents(r *http.Request) bool {
	values := r.Header.Values("Accept")
	for part := range strings.SplitSeq(strings.Join(values, ","), ",") {
		mediaType, _, _ := strings.Cut(part, ";")
		switch strings.ToLower(strings.TrimSpace(mediaType)) {
		case typeEvents, "text/*", "*/*":
			return true
		}
	}
	return len(values) == 0
}

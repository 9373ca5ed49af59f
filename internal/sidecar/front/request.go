package front

import (
	"net/http"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// once are the headers that a request may have only once.
var once = [...]string{HeaderSession, HeaderRevision, HeaderLastEventID}

// NamesOnce reports whether a request names its session, revision and last event at most once.
// Proxies and servers may read the first or the last of several headers. If NamesOnce returns
// false it has answered the HTTP request. The id is that of the JSON-RPC request, or nil.
func NamesOnce(w http.ResponseWriter, r *http.Request, id []byte) bool {
	for _, name := range once {
		if len(r.Header[name]) > 1 {
			Refuse(w, http.StatusBadRequest, id, rpc.CodeInvalidRequest, "the "+name+" header stands more than once")
			return false
		}
	}
	return true
}

// SessionOf returns the id of the session that a request to the MCP endpoint names. It is empty for requests of
// the revision without sessions, and for those that NamesOnce refuses.
func SessionOf(header http.Header) string {
	if named := header[HeaderSession]; len(named) == 1 && (len(header[HeaderRevision]) == 0 || header[HeaderRevision][0] != Revision20260728) {
		return named[0]
	}
	return ""
}

// Methods are the HTTP methods of the MCP endpoint, in the format of the Allow header.
const Methods = "GET, POST, DELETE"

// TakesMethod reports whether the MCP endpoint has the HTTP method of a request. If it returns
// false it has answered the request.
func TakesMethod(w http.ResponseWriter, r *http.Request) bool {
	switch r.Method {
	case http.MethodPost:
		return true
	case http.MethodGet, http.MethodDelete:
		if r.Header.Get(HeaderRevision) != Revision20260728 {
			return true
		}
		w.Header().Set("Allow", http.MethodPost) // M-01
		Refuse(w, http.StatusMethodNotAllowed, nil, rpc.CodeInvalidRequest, "protocol revision "+Revision20260728+" has POST only")
		return false
	}
	w.Header().Set("Allow", Methods)
	Refuse(w, http.StatusMethodNotAllowed, nil, rpc.CodeInvalidRequest, "the MCP endpoint takes POST, GET and DELETE")
	return false
}

// acceptUsual is the Accept header of nearly all clients.
const acceptUsual = TypeJSON + ", " + TypeEvents

// Accepts reports whether the Accept headers of a request allow all of the types. A client that
// sends none accepts every type. If Accepts returns false it has answered the HTTP request. The
// id is that of the JSON-RPC request, or nil.
func Accepts(w http.ResponseWriter, r *http.Request, id []byte, types ...string) bool {
	values := r.Header["Accept"]
	if len(values) == 0 || len(values) == 1 && values[0] == acceptUsual {
		return true
	}
	for _, want := range types {
		if !acceptsOne(values, want) {
			Refuse(w, http.StatusNotAcceptable, id, rpc.CodeInvalidRequest, "the Accept header must allow "+strings.Join(types, " and "))
			return false
		}
	}
	return true
}

func acceptsOne(values []string, want string) bool {
	group, _, _ := strings.Cut(want, "/")
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			mediaType, _, _ := strings.Cut(part, ";")
			switch mediaType = strings.TrimSpace(mediaType); {
			case mediaType == "*/*", strings.EqualFold(mediaType, want), strings.EqualFold(mediaType, group+"/*"):
				return true
			}
		}
	}
	return false
}

package front

import (
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// once are the headers that name what a request belongs to.
var once = [...]string{HeaderSession, HeaderRevision, HeaderLastEventID}

// NamesOnce reports whether a request has no header twice that names what it belongs to: parts
// that take another one of them would disagree. If it has, it has answered the request; the id
// is that of the message, if it is one to be answered.
func NamesOnce(w http.ResponseWriter, r *http.Request, id []byte) bool {
	for _, name := range once {
		if len(r.Header[name]) > 1 {
			Refuse(w, http.StatusBadRequest, id, rpc.CodeInvalidRequest, "the "+name+" header stands more than once")
			return false
		}
	}
	return true
}

// Methods are those of the MCP endpoint, as browsers and the Allow header list them.
const Methods = "GET, POST, DELETE"

// TakesMethod reports whether the MCP endpoint has the method of a request. If not, it has
// answered the request.
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

package peer

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// The headers between pods. They count on the peer port alone, where only pods of the server connect.
const (
	headerPrefix    = "Slipway-Peer-"
	headerClient    = headerPrefix + "Client"    // the client's address and port
	headerPrincipal = headerPrefix + "Principal" // who the client is, if the sender has verified its token
)

// PingPath answers every request. Pods ask for it to find out whether another one lives.
const PingPath = "/peer/ping"

// principal is an identity.Identity between pods, which may be of two versions.
type principal struct {
	Issuer  string    `json:"issuer"`
	User    string    `json:"user"`
	Groups  []string  `json:"groups,omitempty"`
	Client  string    `json:"client,omitempty"`
	Scopes  []string  `json:"scopes,omitempty"`
	TokenID string    `json:"tokenID,omitempty"`
	Actors  []string  `json:"actors,omitempty"`
	Expires time.Time `json:"expires"`
}

// outgoing returns the headers of a request for another pod. A token that this pod has verified stays here: the
// other pod gets to know who the client is.
func outgoing(header http.Header, client string, from *caller.Caller) http.Header {
	out := make(http.Header, len(header)+2)
	for name, values := range header {
		if !strings.HasPrefix(name, headerPrefix) && name != adapterapi.HeaderProbe {
			out[name] = values
		}
	}
	out[headerClient] = []string{client}
	if who := from.Identity(); who != nil {
		delete(out, "Authorization")
		out[headerPrincipal] = []string{encode(who)}
	}
	return out
}

func encode(who *identity.Identity) string {
	text, err := json.Marshal(principal(*who))
	if err != nil {
		panic("encode principal: " + err.Error()) // only for a time after the year 9999
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// Vouched returns who the client is that another pod sends a request of; nil if that pod has not verified it.
func Vouched(r *http.Request) *identity.Identity {
	values := r.Header[headerPrincipal]
	if len(values) != 1 {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(values[0])
	if err != nil {
		return nil
	}
	var who principal
	if json.Unmarshal(text, &who) != nil || who.User == "" {
		return nil
	}
	made := identity.Identity(who)
	return &made
}

// Handler returns the handler of the peer port: the Door gets each request as it would get it from the client.
func Handler(door http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == PingPath {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if values := r.Header[headerClient]; len(values) == 1 {
			r.RemoteAddr = values[0]
		}
		door.ServeHTTP(w, r)
	})
}

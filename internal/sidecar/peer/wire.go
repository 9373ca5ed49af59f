package peer

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
)

// The headers between pods. They count on the peer port alone, where only pods of the server connect.
const (
	headerClient    = front.PeerPrefix + "Client"    // the client's address and port
	headerPrincipal = front.PeerPrefix + "Principal" // who the client is, if the sender has verified its token
	headerPlace     = front.PeerPrefix + "Place"     // whether this pod opens a session; without it, it does if it can
)

// Values of headerPlace.
const (
	placeIfFree = "if-free" // only if that takes no wait, and ends no other session
	placeNever  = "never"   // only answer if the session that the request names is open
)

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

// outgoing returns the headers of a request for another pod. The owner's access document may ask for a token
// when that of this pod does not, or the other way round, so the token goes along.
func outgoing(header http.Header, client string, from *caller.Caller) http.Header {
	out := make(http.Header, len(header)+2)
	connection := header["Connection"]
	for name, values := range header {
		if !strings.HasPrefix(name, front.PeerPrefix) && name != adapterapi.HeaderProbe && !front.IsHopByHop(name, connection) {
			out[name] = values
		}
	}
	// After those of the client, which could name these in its Connection header.
	out[headerClient] = []string{client}
	if who := from.Identity(); who != nil {
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

// Vouched returns the client whose request another pod has passed on. It is nil if that pod has not verified who
// the client is.
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
		if r.URL.Path == relay.PingPath {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if values := r.Header[headerClient]; len(values) == 1 {
			r.RemoteAddr = values[0] //nolint:forbidigo // The edge of the other pod has said who the client is.
		}
		door.ServeHTTP(w, r)
	})
}

package peer

import (
	"net/http"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Guests decides about sessions that other pods ask this one to take. It is the edge.Placer of the port for pods.
// It asks no other pod, so that no request goes in circles.
type Guests struct {
	// Load returns how full this pod is.
	Load func() Load
	// Works reports whether a session that begins at this pod has a server.
	Works func() bool
}

// Place implements edge.Placer. A refusal says that nothing has begun, so that the other pod may ask a third one.
func (g *Guests) Place(w http.ResponseWriter, r *edge.Request, in *session.Registry) (*session.Slot, error) {
	asks := r.Head(headerPlace)
	if asks == "" { // of a pod of an older version
		return in.Reserve(r.Context(), &r.Caller)
	}
	var slot *session.Slot
	err := places.ErrFull
	if asks == placeIfFree && g.Works() {
		slot, err = in.ReserveOn(r.Context(), &r.Caller, places.Terms{})
	}
	said := report{Load: g.Load(), refused: err != nil}
	if slot != nil {
		said.Spares = max(said.Spares-1, 0) // the session takes it a moment later
	}
	w.Header().Set(headerLoad, said.String())
	if said.refused {
		r.PassedOn() // the pod that asks answers the client, or a third one does
	}
	return slot, err
}

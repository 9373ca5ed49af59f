package edge

import (
	"net/http"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Place finds a slot for the session that the request opens. The front end calls it when nothing else is wrong with
// the request, and before anything starts for the session. It must fill or release the slot. It refuses the request if
// there is an error. If there is neither, the request has its answer already.
func (r *Request) Place(w http.ResponseWriter, in *session.Registry) (*session.Slot, error) {
	return r.door.options.Place.Place(w, r, in)
}

// PassedOn records that another instance answers the client, and counts the request. Unless the answer has begun, it
// is for that instance, and not logged as a refusal.
func (r *Request) PassedOn() {
	r.passedOn = true
	if r.Record.counted {
		r.Record.counted = false
		r.door.options.Metrics.inFlight.Add(-1)
	}
}

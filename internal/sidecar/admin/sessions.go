package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// listSessions describes the sessions of clients to a user who proves to have the key for sessions.
func (h *handler) listSessions(w http.ResponseWriter, r *http.Request) {
	proof, ok := h.authenticate(w, r, adapterapi.SessionsSubject)
	if !ok {
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	body, err := json.Marshal(h.ListSessions())
	if err != nil {
		send(w, proof, adapterapi.Answer{Status: http.StatusInternalServerError}, fmt.Errorf("encode sessions: %w", err))
		return
	}
	send(w, proof, adapterapi.Answer{Status: http.StatusOK, Body: body}, nil)
}

var errNoSession = errors.New("no client has a session with this number")

// endSession ends the session of a client. Its client opens another one with its next request.
func (h *handler) endSession(w http.ResponseWriter, r *http.Request) {
	number := r.PathValue("number")
	proof, ok := h.authenticate(w, r, func(podUID string) adapterapi.Subject {
		return adapterapi.SessionEndSubject(podUID, number)
	})
	switch {
	case !ok:
	case h.EndSession(number):
		send(w, proof, adapterapi.Answer{Status: http.StatusNoContent}, nil)
	default:
		send(w, proof, adapterapi.Answer{Status: http.StatusNotFound}, errNoSession)
	}
}

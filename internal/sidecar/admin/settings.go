package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/settings"
)

// pushTimeout is for the manager to send the body of a push.
const pushTimeout = 10 * time.Second

// settings takes a document from a manager that proves that it has the key. It reads no body without
// such a proof. The answer says which document is in effect.
func (h *handler) settings(w http.ResponseWriter, r *http.Request) {
	proof, ok := h.authenticate(w, r, adapterapi.SettingsSubject)
	if !ok {
		return
	}
	status, err := h.take(w, r, proof)
	answer := adapterapi.Answer{Status: status}
	if err == nil || status == http.StatusConflict {
		answer.Body, err = json.Marshal(h.Settings.State())
	}
	send(w, proof, answer, err)
}

// take reads the document and puts it into effect. Otherwise the error says why it does not.
func (h *handler) take(w http.ResponseWriter, r *http.Request, proof adapterapi.Proof) (status int, err error) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(pushTimeout)) // fails only without a connection, in tests
	document, err := io.ReadAll(http.MaxBytesReader(w, r.Body, adapterapi.MaxSettingsBytes))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return http.StatusRequestEntityTooLarge, fmt.Errorf("settings have at most %d bytes", adapterapi.MaxSettingsBytes)
	}
	if err != nil {
		return http.StatusBadRequest, fmt.Errorf("read settings: %w", err)
	}
	if !proof.OpensBody(r.Header.Get(adapterapi.HeaderBody), document) {
		return http.StatusUnauthorized, errors.New("the header " + adapterapi.HeaderBody + " is not that of this body")
	}
	switch err := h.Settings.Take(document); {
	case errors.Is(err, settings.ErrOlder):
		return http.StatusConflict, err
	case err != nil:
		return http.StatusUnprocessableEntity, err
	}
	return http.StatusOK, nil
}

package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/settings"
)

// pushTimeout is for the manager to send the body of a push.
const pushTimeout = 10 * time.Second

// settings takes a document from a manager that proves that it has the key. It reads no
// body of a request without such a proof. The answer says what is in effect, and carries
// a MAC like that of the catalogue.
func (h *handler) settings(w http.ResponseWriter, r *http.Request) {
	if !h.Keys.Shared() {
		say(w, http.StatusNotFound, "settings are not taken: start with --keys-dir, and the sender proves that it has a key")
		return
	}
	proof, ok := h.Keys.SettingsProof(r)
	if !ok {
		say(w, http.StatusUnauthorized, "settings need a proof, made with the server's key for this pod within the last "+adapterapi.Window.String()+", in the header "+adapterapi.HeaderProof)
		return
	}
	status, err := h.take(w, r, proof)
	answer := adapterapi.Answer{Status: status}
	header := w.Header()
	if err == nil || status == http.StatusConflict {
		header.Set("Content-Type", "application/json")
		answer.Body, err = json.Marshal(h.Settings.State())
	} else {
		header.Set("Content-Type", "text/plain; charset=utf-8")
		answer.Body, err = []byte(err.Error()+"\n"), nil
	}
	if err != nil {
		say(w, http.StatusInternalServerError, err.Error())
		return
	}
	header.Set(adapterapi.HeaderAnswer, proof.Seal(answer))
	header.Set("Content-Length", strconv.Itoa(len(answer.Body)))
	w.WriteHeader(status)
	_, _ = w.Write(answer.Body) // the manager has it, or asks again
}

// take reads the document and puts it into effect. The error says why not.
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

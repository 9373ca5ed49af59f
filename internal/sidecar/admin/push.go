package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/document"
)

// pushTimeout is for the manager to send the body of a push.
const pushTimeout = 10 * time.Second

// pushed is a document that the manager can push.
type pushed struct {
	name    string // in errors
	subject func(podUID string) adapterapi.Subject
	most    int64 // bytes
	take    func(text []byte) error
	state   func() any // which document is in effect
}

// settings takes a document with settings.
func (h *handler) settings(w http.ResponseWriter, r *http.Request) {
	h.push(w, r, pushed{
		name: "settings", subject: adapterapi.SettingsSubject, most: adapterapi.MaxSettingsBytes,
		take: h.Settings.Take, state: func() any { return h.Settings.State() },
	})
}

// access takes an access document.
func (h *handler) access(w http.ResponseWriter, r *http.Request) {
	h.push(w, r, pushed{
		name: "an access document", subject: adapterapi.AccessPushSubject, most: adapterapi.MaxAccessBytes,
		take: h.Access.Take, state: func() any { return h.Access.State() },
	})
}

// peers takes the list of the server's pods.
func (h *handler) peers(w http.ResponseWriter, r *http.Request) {
	h.push(w, r, pushed{
		name: "a list of pods", subject: adapterapi.PeersSubject, most: adapterapi.MaxPeersBytes,
		take: h.Peers.Take, state: func() any { return h.Peers.State() },
	})
}

// push takes a document from a manager that proves that it has the key. It reads no body without such a
// proof. The answer says which document is in effect.
func (h *handler) push(w http.ResponseWriter, r *http.Request, p pushed) {
	proof, ok := h.authenticate(w, r, p.subject)
	if !ok {
		return
	}
	status, err := p.read(w, r, proof)
	answer := adapterapi.Answer{Status: status}
	if err == nil || status == http.StatusConflict {
		answer.Body, err = json.Marshal(p.state())
	}
	send(w, proof, answer, err)
}

// read reads the document and puts it into effect. Otherwise the error says why it does not.
func (p *pushed) read(w http.ResponseWriter, r *http.Request, proof adapterapi.Proof) (status int, err error) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(pushTimeout)) // fails only without a connection, in tests
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, p.most))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return http.StatusRequestEntityTooLarge, fmt.Errorf("%s may have at most %d bytes", p.name, p.most)
	}
	if err != nil {
		return http.StatusBadRequest, fmt.Errorf("read %s: %w", p.name, err)
	}
	if !proof.OpensBody(r.Header.Get(adapterapi.HeaderBody), text) {
		return http.StatusUnauthorized, errors.New("the header " + adapterapi.HeaderBody + " is not that of this body")
	}
	switch err := p.take(text); {
	case errors.Is(err, document.ErrOlder):
		return http.StatusConflict, err
	case err != nil:
		return http.StatusUnprocessableEntity, err
	}
	return http.StatusOK, nil
}

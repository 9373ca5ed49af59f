// Package admin serves the adapter's admin port, for the kubelet, the manager and
// Prometheus. MCP clients have another port.
package admin

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/internal/sidecar/settings"
)

// longestWait bounds how long a readiness check may wait for its answer.
const longestWait = 10 * time.Second

// Options are what the admin port reports, and where settings go.
type Options struct {
	// State returns what the keeper knows, and a channel that closes when that changes.
	State func() (keeper.State, <-chan struct{})
	// Sessions counts the sessions of clients.
	Sessions func() adapterapi.Sessions
	// Keys check the proofs of the manager. Without keys that a manager shares, the admin
	// port serves no catalogue and takes no settings.
	Keys *keys.Keys
	// Settings take what the manager pushes, and say what is in effect.
	Settings *settings.Live
	// Metrics serves the metrics.
	Metrics http.Handler
	// Parts are those of which none may be stuck.
	Parts []Part
}

// Handler returns the handler of the admin port.
func Handler(options Options) http.Handler {
	h := &handler{Options: options}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+adapterapi.PathLive, newLiveness(options.Parts).live)
	mux.HandleFunc("GET "+adapterapi.PathReady, h.ready)
	mux.HandleFunc("GET "+adapterapi.PathCatalog, h.catalog)
	mux.HandleFunc("PUT "+adapterapi.PathSettings, h.settings)
	mux.Handle("GET "+adapterapi.PathMetrics, options.Metrics)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		say(w, http.StatusNotFound, "there is nothing here; the paths are "+strings.Join([]string{adapterapi.PathLive, adapterapi.PathReady, adapterapi.PathCatalog, adapterapi.PathMetrics}, ", "))
	})
	return mux
}

type handler struct {
	Options
	saidReady atomic.Bool // in the last answer to a request with ?wait, which only kubelets send
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the reader has it, or is gone
}

// ready says whether the server works. With ?wait=DURATION it holds a "no" back for that
// long, in case it becomes a "yes": so the kubelet learns of it at once, and not with its
// next check. It does not hold the first "no" after a "yes" back, because then the
// kubelet must learn of the failure at once.
func (h *handler) ready(w http.ResponseWriter, r *http.Request) {
	wait, err := parseWait(r.URL.Query().Get("wait"))
	if err != nil {
		say(w, http.StatusBadRequest, err.Error())
		return
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		state, changed := h.State()
		if state.Ready {
			h.saidReady.Store(wait > 0)
			say(w, http.StatusOK, "ok")
			return
		}
		if wait > 0 && r.Context().Err() == nil && h.saidReady.Swap(false) {
			say(w, http.StatusServiceUnavailable, fault.Brief(state.Err))
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-timeout.C:
			say(w, http.StatusServiceUnavailable, fault.Brief(state.Err))
			return
		}
	}
}

func parseWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 || wait > longestWait {
		return 0, errors.New("wait must be a duration of at most " + longestWait.String())
	}
	return wait, nil
}

// catalog says what the server offers, to a manager that proves that it has the key. The
// answer carries a MAC, so that no process without the key can forge one.
func (h *handler) catalog(w http.ResponseWriter, r *http.Request) {
	if !h.Keys.Shared() {
		say(w, http.StatusNotFound, "the catalogue is not served: start with --keys-dir, and readers prove that they have a key")
		return
	}
	proof, ok := h.Keys.CatalogProof(r)
	if !ok {
		say(w, http.StatusUnauthorized, "the catalogue needs a proof, made with the server's key for this pod within the last "+adapterapi.Window.String()+", in the header "+adapterapi.HeaderProof)
		return
	}
	answer, err := h.answer(r)
	header := w.Header()
	switch {
	case err != nil:
		answer = adapterapi.Answer{Status: http.StatusInternalServerError, Body: []byte(err.Error() + "\n")}
		header.Set("Content-Type", "text/plain; charset=utf-8")
	case answer.Status == http.StatusOK:
		header.Set("Content-Type", "application/json")
	}
	if answer.ETag != "" {
		header.Set("ETag", answer.ETag)
		header.Set(adapterapi.HeaderSessions, answer.Sessions)
	}
	header.Set("Cache-Control", "no-cache")
	header.Set(adapterapi.HeaderAnswer, proof.Seal(answer))
	if answer.Status != http.StatusNotModified {
		header.Set("Content-Length", strconv.Itoa(len(answer.Body)))
	}
	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Body) // the reader has it, or is gone
}

func (h *handler) answer(r *http.Request) (adapterapi.Answer, error) {
	state, _ := h.State()
	body, err := encode(state, h.Settings.State())
	if err != nil {
		return adapterapi.Answer{}, err
	}
	digest := sha256.Sum256(body)
	answer := adapterapi.Answer{
		Status: http.StatusOK, ETag: fmt.Sprintf(`"%x"`, digest[:16]), Sessions: h.Sessions().String(), Body: body,
	}
	if r.Header.Get("If-None-Match") == answer.ETag {
		answer.Status, answer.Body = http.StatusNotModified, nil
	}
	return answer, nil
}

func encode(state keeper.State, inEffect adapterapi.SettingsState) ([]byte, error) {
	report := adapterapi.Report{Ready: state.Ready, Reason: state.Reason, Settings: &inEffect}
	if state.Err != nil {
		report.Error = state.Err.Error()
	}
	if state.Catalog != nil {
		encoded, err := json.Marshal(state.Catalog)
		if err != nil {
			return nil, fmt.Errorf("encode catalogue: %w", err)
		}
		report.Catalog = encoded
	}
	body, err := json.Marshal(report)
	if err != nil {
		return nil, fmt.Errorf("encode report: %w", err)
	}
	return body, nil
}

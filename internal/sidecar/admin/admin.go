// Package admin serves what the kubelet, the manager and Prometheus ask of an
// adapter, apart from its clients.
package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
)

// The paths.
const (
	PathLive    = "/livez"
	PathReady   = "/readyz"
	PathCatalog = "/catalog"
	PathMetrics = "/metrics"
)

// HeaderSessions carries the number of open sessions with a catalogue, outside its
// ETag: it changes all the time.
const HeaderSessions = "Slipway-Sessions"

// longestWait bounds how long a readiness check may be held.
const longestWait = 10 * time.Second

// Options are what there is to tell.
type Options struct {
	// State is what the keeper knows, and when that changes.
	State func() (keeper.State, <-chan struct{})
	// Sessions is the number of open sessions.
	Sessions func() int
	// Key must be presented for the catalogue, as a bearer token. Without one
	// the catalogue is not served at all.
	Key []byte
	// Metrics serves the metrics.
	Metrics http.Handler
}

// Handler returns the handler of the admin port.
func Handler(options Options) http.Handler {
	h := &handler{Options: options}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+PathLive, func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET "+PathReady, h.ready)
	mux.HandleFunc("GET "+PathCatalog, h.catalog)
	mux.Handle("GET "+PathMetrics, options.Metrics)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		say(w, http.StatusNotFound, "there is nothing here; the paths are "+strings.Join([]string{PathLive, PathReady, PathCatalog, PathMetrics}, ", "))
	})
	return mux
}

type handler struct {
	Options
	saidReady atomic.Bool // when somebody last asked with ?wait, which only kubelets do
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // it is heard, or nobody is there
}

// ready says whether the server works. With ?wait=DURATION an answer that would be
// no is held back for that long, in case it becomes yes: the kubelet then learns of
// it at once, and not with its next check. The first no after a yes is not held back:
// then it is the loss that is news.
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
			say(w, http.StatusServiceUnavailable, keeper.Brief(state.Err))
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-timeout.C:
			say(w, http.StatusServiceUnavailable, keeper.Brief(state.Err))
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

// Report is the body of a catalogue's answer.
type Report struct {
	Ready bool `json:"ready"`
	// Reason and Error say why not, or what went wrong last.
	Reason  keeper.Reason   `json:"reason,omitempty"`
	Error   string          `json:"error,omitempty"`
	Catalog json.RawMessage `json:"catalog,omitempty"`
}

// catalog says what the server offers, to those who have the key.
func (h *handler) catalog(w http.ResponseWriter, r *http.Request) {
	if len(h.Key) == 0 {
		say(w, http.StatusNotFound, "the catalogue is not served: start with a key, which readers then present")
		return
	}
	if !h.authorized(r) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		say(w, http.StatusUnauthorized, "the catalogue needs the server's key as a bearer token")
		return
	}
	state, _ := h.State()
	body, err := encode(state)
	if err != nil {
		say(w, http.StatusInternalServerError, err.Error())
		return
	}
	digest := sha256.Sum256(body)
	tag := fmt.Sprintf(`"%x"`, digest[:16])
	header := w.Header()
	header.Set("ETag", tag)
	header.Set(HeaderSessions, strconv.Itoa(h.Sessions()))
	header.Set("Cache-Control", "no-cache")
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // it is read, or nobody is there
}

func encode(state keeper.State) ([]byte, error) {
	report := Report{Ready: state.Ready, Reason: state.Reason}
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

func (h *handler) authorized(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return false
	}
	presented, wanted := sha256.Sum256([]byte(token)), sha256.Sum256(h.Key)
	return subtle.ConstantTimeCompare(presented[:], wanted[:]) == 1
}

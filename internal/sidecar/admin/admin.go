// Package admin serves the adapter's admin port, for the kubelet, the manager and
// Prometheus. MCP clients have another port.
package admin

import (
	"cmp"
	"context"
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
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
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
	// SessionIDs returns the ids of the sessions of clients, to count those of each key. They never leave the adapter.
	SessionIDs func() []string
	// ListSessions describes the sessions of clients.
	ListSessions func() adapterapi.SessionList
	// EndSession ends the session of a client with this number. It reports whether there is one.
	EndSession func(number string) bool
	// Processes counts how the server's processes ended recently.
	Processes func() adapterapi.Processes
	// Keys check the proofs of the manager. Without keys that a manager shares, the admin
	// port serves no catalog and takes no settings.
	Keys *keys.Keys
	// Settings take what the manager pushes, and say what is in effect.
	Settings *settings.Live
	// Access takes the access documents that the manager pushes, and says which is in effect.
	Access *access.Gate
	// Peers takes the manager's list of the server's pods; nil if the adapter passes no requests on.
	Peers *roster.Roster
	// Metrics serves the metrics.
	Metrics http.Handler
	// Parts are the parts of the adapter that the liveness check looks at.
	Parts []Part
}

// Handler returns the handler of the admin port.
func Handler(options Options) http.Handler {
	h := &handler{Options: options}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+adapterapi.PathLive, (&liveness{parts: options.Parts, turn: make(chan struct{}, 1)}).live)
	mux.HandleFunc("GET "+adapterapi.PathReady, h.ready)
	mux.HandleFunc("GET "+adapterapi.PathCatalog, h.catalog)
	mux.HandleFunc("PUT "+adapterapi.PathSettings, h.settings)
	mux.HandleFunc("PUT "+adapterapi.PathAccess, h.access)
	if options.Peers != nil {
		mux.HandleFunc("PUT "+adapterapi.PathPeers, h.peers)
	}
	mux.HandleFunc("GET "+adapterapi.PathSessions, h.listSessions)
	mux.HandleFunc("DELETE "+adapterapi.PathSessions+"/{number}", h.endSession)
	mux.Handle("GET "+adapterapi.PathMetrics, options.Metrics)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		say(w, http.StatusNotFound, "there is nothing here; the paths are "+strings.Join([]string{adapterapi.PathLive, adapterapi.PathReady, adapterapi.PathCatalog, adapterapi.PathSessions, adapterapi.PathMetrics}, ", "))
	})
	return mux
}

type handler struct {
	Options
	// urgent is how many more times the answer "no" to a request with ?wait, which only the kubelet
	// sends, is not delayed.
	urgent atomic.Int32
}

const plainText = "text/plain; charset=utf-8"

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", plainText)
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // fails only if the client has closed the connection
}

// ready reports whether the server works. With ?wait=DURATION it delays a "no" for that long, in case
// the server becomes ready meanwhile: then the kubelet learns that at once, and not with its next
// check. After a "yes" it does not delay as many "no" as the kubelet needs to take the endpoint away, so
// that the kubelet acts on a failure at once, too.
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
		withheld := h.Access.Ready()
		if state.Ready && withheld == nil {
			if wait > 0 {
				h.urgent.Store(adapterapi.UnreadyAnswers)
			}
			say(w, http.StatusOK, "ok")
			return
		}
		if (wait == 0 || r.Context().Err() != nil || h.urgent.Add(-1) < 0) && h.mayBeReady(r.Context(), changed, withheld, timeout.C) {
			continue
		}
		say(w, http.StatusServiceUnavailable, fault.Brief(cmp.Or(withheld, state.Err)))
		return
	}
}

// mayBeReady waits until the adapter may have become ready. It returns false when the time is over, or the client has
// left.
func (h *handler) mayBeReady(ctx context.Context, changed <-chan struct{}, withheld error, timeout <-chan time.Time) bool {
	var arrived <-chan struct{} // the access document; nil if the adapter does not wait for one
	if withheld != nil {
		arrived = h.Access.Arrived()
	}
	select {
	case <-changed:
		return true
	case <-arrived:
		return true
	case <-ctx.Done():
		return false
	case <-timeout:
		return false
	}
}

func parseWait(text string) (time.Duration, error) {
	wait, err := time.ParseDuration(cmp.Or(text, "0"))
	if err != nil || wait < 0 || wait > longestWait {
		return 0, errors.New("wait must be a duration of at most " + longestWait.String())
	}
	return wait, nil
}

// authenticate returns the proof of the manager, or of a user with the key for sessions. It refuses a request without a valid one.
func (h *handler) authenticate(w http.ResponseWriter, r *http.Request, subject func(podUID string) adapterapi.Subject) (proof adapterapi.Proof, ok bool) {
	if !h.Keys.Shared() {
		say(w, http.StatusNotFound, "not served: start with --keys-dir, so that the manager can prove that it has a key")
		return adapterapi.Proof{}, false
	}
	proof, ok = h.Keys.Proof(r, subject)
	if !ok {
		say(w, http.StatusUnauthorized, "this needs a proof, made with the server's key for this pod within the last "+adapterapi.Window.String()+", in the header "+adapterapi.HeaderProof)
	}
	return proof, ok
}

// send writes an answer with a MAC, so that no process without the key can forge one. If err is not
// nil, the body is its text.
func send(w http.ResponseWriter, proof adapterapi.Proof, answer adapterapi.Answer, err error) {
	contentType := "application/json"
	if err != nil {
		contentType, answer.Body = plainText, []byte(err.Error()+"\n")
	}
	header := w.Header()
	if answer.Status != http.StatusNotModified {
		header.Set("Content-Type", contentType)
		header.Set("Content-Length", strconv.Itoa(len(answer.Body)))
	}
	header.Set(adapterapi.HeaderAnswer, proof.Seal(answer))
	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Body) // a manager that does not get it asks again
}

// catalog reports what the server offers to a manager that proves that it has the key.
func (h *handler) catalog(w http.ResponseWriter, r *http.Request) {
	proof, ok := h.authenticate(w, r, adapterapi.CatalogSubject)
	if !ok {
		return
	}
	h.renew(r)
	w.Header().Set("Cache-Control", "no-cache")
	body, err := h.report()
	if err != nil {
		send(w, proof, adapterapi.Answer{Status: http.StatusInternalServerError}, err)
		return
	}
	digest := sha256.Sum256(body)
	sessions := h.Sessions()
	answer := adapterapi.Answer{Status: http.StatusOK, ETag: fmt.Sprintf(`"%x"`, digest[:16]), Sessions: sessions.String(), Body: body}
	if r.Header.Get(adapterapi.HeaderSessions) == adapterapi.SessionsWithSpares {
		answer.Sessions = sessions.WithSpares()
	}
	if r.Header.Get(adapterapi.HeaderProcesses) != "" {
		answer.Processes = h.Processes().String()
		w.Header().Set(adapterapi.HeaderProcesses, answer.Processes)
	}
	if r.Header.Get(adapterapi.HeaderKeys) != "" {
		answer.Keys = h.Keys.Use(h.SessionIDs).String()
		w.Header().Set(adapterapi.HeaderKeys, answer.Keys)
	}
	if r.Header.Get("If-None-Match") == answer.ETag {
		answer.Status, answer.Body = http.StatusNotModified, nil
	}
	w.Header().Set("ETag", answer.ETag)
	w.Header().Set(adapterapi.HeaderSessions, answer.Sessions)
	send(w, proof, answer, nil)
}

// renew has the list of pods count for longer if the manager says that it is the newest.
func (h *handler) renew(r *http.Request) {
	generation, err := strconv.ParseInt(r.Header.Get(adapterapi.HeaderPeers), 10, 64)
	if err == nil && h.Peers != nil {
		h.Peers.Renew(generation)
	}
}

func (h *handler) report() ([]byte, error) {
	state, _ := h.State()
	inEffect, enforced := h.Settings.State(), h.Access.State()
	report := adapterapi.Report{Ready: state.Ready, Reason: state.Reason, Settings: &inEffect, Access: &enforced, Failures: state.Failures}
	if state.Err != nil {
		report.Error = state.Err.Error()
	}
	if h.Peers != nil {
		listed := h.Peers.State()
		report.Peers = &listed
	}
	if state.Catalog != nil {
		encoded, err := json.Marshal(state.Catalog)
		if err != nil {
			return nil, fmt.Errorf("encode catalog: %w", err)
		}
		report.Catalog = encoded
	}
	body, err := json.Marshal(report)
	if err != nil {
		return nil, fmt.Errorf("encode report: %w", err)
	}
	return body, nil
}

package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/settings"
)

func accessOf(t *testing.T, generation int64, key adapterapi.Key) adapterapi.Document {
	t.Helper()
	d, err := adapterapi.Access{
		Version: adapterapi.AccessVersion, Generation: generation, Mode: adapterapi.AccessNone,
		Audit: adapterapi.AccessAudit{Level: adapterapi.AuditNone, WhenFull: adapterapi.AuditDrop},
	}.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The adapter serves no client before it has the access rules, so it is not ready either.
func TestReadyNeedsAccess(t *testing.T) {
	h, _, gate, _ := pushHandler(sharedKeys(t))
	ready := func() (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, adapterapi.PathReady, nil))
		return w.Code, w.Body.String()
	}
	if status, text := ready(); status != http.StatusServiceUnavailable || !strings.Contains(text, "no access document yet") {
		t.Errorf("before: %d %s", status, text)
	}
	if err := gate.Take([]byte(accessOf(t, 1, serverKey).Text)); err != nil {
		t.Fatal(err)
	}
	if status, text := ready(); status != http.StatusOK {
		t.Errorf("after: %d %s", status, text)
	}
}

// The kubelet learns at once that the first document is there, and not with its next check.
func TestReadyWaitsForAccess(t *testing.T) {
	tests := map[string]struct {
		state      keeper.State
		comes      time.Duration // the document
		wantStatus int
		wantAfter  time.Duration
	}{
		"the document comes":                    {keeper.State{Ready: true}, 2 * time.Second, http.StatusOK, 2 * time.Second},
		"it comes too late":                     {keeper.State{Ready: true}, 6 * time.Second, http.StatusServiceUnavailable, 5 * time.Second},
		"it comes, and the server does not run": {keeper.State{Err: errors.New("the server does not run")}, 2 * time.Second, http.StatusServiceUnavailable, 5 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				held := sharedKeys(t)
				gate := access.New(access.Options{Ring: held.Ring, Required: true})
				h := Handler(Options{
					State: newSource(test.state).get, Sessions: func() adapterapi.Sessions { return adapterapi.Sessions{} }, Keys: held,
					Settings: settings.New(settings.Options{}), Access: gate, Metrics: http.NotFoundHandler(),
				})
				document := accessOf(t, 1, serverKey).Text
				time.AfterFunc(test.comes, func() { _ = gate.Take([]byte(document)) })
				began, w := time.Now(), httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, adapterapi.PathReady+"?wait=5s", nil))
				if took := time.Since(began); w.Code != test.wantStatus || took != test.wantAfter {
					t.Errorf("%d %s after %s, want %d after %s", w.Code, w.Body, took, test.wantStatus, test.wantAfter)
				}
				time.Sleep(test.comes) // a document that comes too late must not come after the test
			})
		})
	}
}

// The manager sees by the report what an adapter enforces.
func TestReportHasTheAccess(t *testing.T) {
	h, _, gate, _ := pushHandler(sharedKeys(t))
	report := func() (report adapterapi.Report, tag string) {
		got := read(t, h)
		if err := json.Unmarshal(got.Body.Bytes(), &report); err != nil {
			t.Fatal(err)
		}
		return report, got.Header().Get("ETag")
	}
	before, firstTag := report()
	if diff := cmp.Diff(&adapterapi.AccessState{Version: 1}, before.Access); diff != "" {
		t.Errorf("before (-want +got):\n%s", diff)
	}
	d := accessOf(t, 3, serverKey)
	if err := gate.Take([]byte(d.Text)); err != nil {
		t.Fatal(err)
	}
	after, secondTag := report()
	if diff := cmp.Diff(&adapterapi.AccessState{Version: 1, Generation: 3, Digest: d.Digest}, after.Access); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
	if firstTag == secondTag {
		t.Error("the tag is the same")
	}
}

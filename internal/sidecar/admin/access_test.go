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
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
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

func accessHandler(held *keys.Keys) (http.Handler, *access.Gate) {
	gate := access.New(access.Options{Ring: held.Ring, Required: true})
	return Handler(Options{
		State: newSource(keeper.State{Ready: true}).get, Sessions: func() adapterapi.Sessions { return adapterapi.Sessions{} }, Keys: held,
		Settings: settings.New(settings.Options{}), Access: gate, Metrics: http.NotFoundHandler(),
	}), gate
}

// pushAccess is a push of an access document.
func pushAccess(text string) *push {
	return &push{key: serverKey, subject: adapterapi.AccessPushSubject(podUID), at: time.Now(), path: adapterapi.PathAccess, sealed: text, body: text}
}

func TestPushAccess(t *testing.T) {
	has, next := accessOf(t, 5, serverKey), accessOf(t, 6, serverKey)
	put := func(text string) func(*push) { return func(p *push) { p.body, p.sealed = text, text } }
	tests := map[string]struct {
		spoil  func(p *push)
		status int
		signed bool
		want   string // in the answer
	}{
		"a newer document":         {func(*push) {}, 200, true, next.Digest},
		"no proof":                 {func(p *push) { p.noProof = true }, 401, false, "needs a proof"},
		"another key":              {func(p *push) { p.key = adapterapi.NewKey() }, 401, false, "needs a proof"},
		"another pod's":            {func(p *push) { p.subject.PodUID = "another" }, 401, false, "needs a proof"},
		"a proof for settings":     {func(p *push) { p.subject = adapterapi.SettingsSubject(podUID) }, 401, false, "needs a proof"},
		"a proof for reading":      {func(p *push) { p.subject = adapterapi.CatalogSubject(podUID) }, 401, false, "needs a proof"},
		"expired":                  {func(p *push) { p.at = p.at.Add(-adapterapi.Window - time.Second) }, 401, false, "needs a proof"},
		"no seal":                  {func(p *push) { p.noSeal = true }, 401, true, "is not that of this body"},
		"another body's seal":      {func(p *push) { p.sealed = has.Text }, 401, true, "is not that of this body"},
		"too large":                {put(strings.Repeat(" ", adapterapi.MaxAccessBytes+1)), 413, true, "an access document may have at most 458752 bytes"},
		"broken":                   {put(`{}`), 422, true, "the signature is not that of the server's key"},
		"signed by somebody else":  {put(accessOf(t, 6, adapterapi.NewKey()).Text), 422, true, "the signature is not that of the server's key"},
		"settings":                 {put(textOf(t, 6, "six").Text), 422, true, "is not known to this adapter"},
		"older":                    {put(accessOf(t, 4, serverKey).Text), 409, true, has.Digest},
		"what it has":              {put(has.Text), 200, true, has.Digest},
		"settings at another path": {func(p *push) { p.path = adapterapi.PathSettings }, 401, false, "needs a proof"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h, gate := accessHandler(sharedKeys(t))
			if err := gate.Take([]byte(has.Text)); err != nil {
				t.Fatal(err)
			}
			p := pushAccess(next.Text)
			test.spoil(p)
			p.send(h)
			if p.response.Code != test.status || p.signed != test.signed || !strings.Contains(p.response.Body.String(), test.want) {
				t.Errorf("got %d %s, signed %t, want %d with %q, signed %t", p.response.Code, p.response.Body, p.signed, test.status, test.want, test.signed)
			}
			want := has.Digest
			if name == "a newer document" {
				want = next.Digest
			}
			if got := gate.State().Digest; got != want {
				t.Errorf("in effect is %s, want %s", got, want)
			}
		})
	}
}

// Nobody is served before the adapter knows who may call what, so it is not ready either.
func TestReadyNeedsAccess(t *testing.T) {
	h, gate := accessHandler(sharedKeys(t))
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
	h, gate := accessHandler(sharedKeys(t))
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

package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/internal/sidecar/settings"
)

// push is a manager's push, for tests to spoil.
type push struct {
	key      adapterapi.Key
	subject  adapterapi.Subject
	at       time.Time
	path     string
	sealed   string // that the seal is for
	body     string
	noProof  bool
	noSeal   bool
	response *httptest.ResponseRecorder
	signed   bool // the answer is
}

func (p *push) send(h http.Handler) {
	asked, header := adapterapi.NewProof(p.key, p.subject, p.at)
	r := httptest.NewRequest(http.MethodPut, p.path, strings.NewReader(p.body))
	if !p.noProof {
		r.Header.Set(adapterapi.HeaderProof, header)
	}
	if !p.noSeal {
		r.Header.Set(adapterapi.HeaderBody, asked.SealBody([]byte(p.sealed)))
	}
	p.serve(h, r, asked)
}

func (p *push) serve(h http.Handler, r *http.Request, asked adapterapi.Proof) {
	p.response = httptest.NewRecorder()
	h.ServeHTTP(p.response, r)
	p.signed = asked.Opens(p.response.Header().Get(adapterapi.HeaderAnswer), adapterapi.Answer{Status: p.response.Code, Body: p.response.Body.Bytes()})
}

func textOf(t *testing.T, generation int64, host string) adapterapi.Document {
	t.Helper()
	d, err := adapterapi.Settings{Version: adapterapi.SettingsVersion, Generation: generation, AllowedHosts: []string{host}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func newPush(text string) *push {
	return &push{key: serverKey, subject: adapterapi.SettingsSubject(podUID), at: time.Now(), path: adapterapi.PathSettings, sealed: text, body: text}
}

func settingsHandler(t *testing.T, held *keys.Keys) (http.Handler, *settings.Live) {
	t.Helper()
	live := settings.New(settings.Options{})
	return Handler(Options{
		State: newSource(keeper.State{Ready: true}).get, Sessions: func() adapterapi.Sessions { return adapterapi.Sessions{} }, Keys: held, Settings: live, Access: access.New(access.Options{}), Metrics: http.NotFoundHandler(),
	}), live
}

func sharedKeys(t *testing.T) *keys.Keys {
	t.Helper()
	held, err := keys.New(adapterapi.Keyring{Current: serverKey}, podUID)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func TestPush(t *testing.T) {
	has, next := textOf(t, 5, "five"), textOf(t, 6, "six")
	for name, test := range map[string]struct {
		spoil  func(p *push)
		status int
		signed bool
		want   string // in the answer
	}{
		"a newer document":      {func(*push) {}, 200, true, next.Digest},
		"no proof":              {func(p *push) { p.noProof = true }, 401, false, "needs a proof"},
		"another key":           {func(p *push) { p.key = adapterapi.NewKey() }, 401, false, "needs a proof"},
		"another pod's":         {func(p *push) { p.subject.PodUID = "another" }, 401, false, "needs a proof"},
		"a proof for reading":   {func(p *push) { p.subject = adapterapi.CatalogSubject(podUID) }, 401, false, "needs a proof"},
		"a key for reading":     {func(p *push) { p.subject.Use = adapterapi.UseCatalog }, 401, false, "needs a proof"},
		"expired":               {func(p *push) { p.at = p.at.Add(-adapterapi.Window - time.Second) }, 401, false, "needs a proof"},
		"from the future":       {func(p *push) { p.at = p.at.Add(adapterapi.Window + 2*time.Second) }, 401, false, "needs a proof"},
		"no seal":               {func(p *push) { p.noSeal = true }, 401, true, "is not that of this body"},
		"another body's seal":   {func(p *push) { p.sealed = has.Text }, 401, true, "is not that of this body"},
		"too large":             {func(p *push) { p.body = strings.Repeat(" ", adapterapi.MaxSettingsBytes+1); p.sealed = p.body }, 413, true, "at most 524288 bytes"},
		"broken":                {func(p *push) { p.body = `{"version":1,"generation":6}`; p.sealed = p.body }, 422, true, "allowedHosts is empty"},
		"older":                 {func(p *push) { p.body = textOf(t, 4, "four").Text; p.sealed = p.body }, 409, true, has.Digest},
		"what it has":           {func(p *push) { p.body, p.sealed = has.Text, has.Text }, 200, true, has.Digest},
		"what no header can be": {func(p *push) { p.body = textOf(t, 6, "a/b").Text; p.sealed = p.body }, 422, true, "can never match"},
	} {
		t.Run(name, func(t *testing.T) {
			h, live := settingsHandler(t, sharedKeys(t))
			if err := live.Take([]byte(has.Text)); err != nil {
				t.Fatal(err)
			}
			p := newPush(next.Text)
			test.spoil(p)
			p.send(h)
			if p.response.Code != test.status || p.signed != test.signed || !strings.Contains(p.response.Body.String(), test.want) {
				t.Errorf("got %d %s, signed %t, want %d with %q, signed %t", p.response.Code, p.response.Body, p.signed, test.status, test.want, test.signed)
			}
			want := has.Digest
			if name == "a newer document" {
				want = next.Digest
			}
			if got := live.State().Digest; got != want {
				t.Errorf("in effect is %s, want %s", got, want)
			}
		})
	}
}

// What was seen on the network can be shown again for a while, and then undoes nothing.
func TestReplayedPush(t *testing.T) {
	h, live := settingsHandler(t, sharedKeys(t))
	old, present := newPush(textOf(t, 5, "five").Text), newPush(textOf(t, 6, "six").Text)
	asked, header := adapterapi.NewProof(serverKey, old.subject, old.at)
	for _, step := range []struct {
		push   *push
		status int
	}{{old, 200}, {present, 200}, {old, 409}} {
		if step.push == present {
			present.send(h)
		} else {
			r := httptest.NewRequest(http.MethodPut, adapterapi.PathSettings, strings.NewReader(old.body))
			r.Header.Set(adapterapi.HeaderProof, header)
			r.Header.Set(adapterapi.HeaderBody, asked.SealBody([]byte(old.body)))
			old.serve(h, r, asked)
		}
		if step.push.response.Code != step.status {
			t.Errorf("got %d %s, want %d", step.push.response.Code, step.push.response.Body, step.status)
		}
	}
	if got := live.Load().Generation; got != 6 {
		t.Errorf("generation %d is in effect", got)
	}
	var state adapterapi.SettingsState
	if err := json.Unmarshal(old.response.Body.Bytes(), &state); err != nil || state.Generation != 6 || !old.signed {
		t.Errorf("the answer is %s, %v, signed %t, want generation 6", old.response.Body, err, old.signed)
	}
}

// A body is not read of those who cannot prove themselves.
func TestStrangersBodyIsNotRead(t *testing.T) {
	h, _ := settingsHandler(t, sharedKeys(t))
	body := strings.NewReader(strings.Repeat("x", 1000))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, adapterapi.PathSettings, body))
	if body.Len() != 1000 {
		t.Errorf("%d bytes were read", 1000-body.Len())
	}
}

func TestPushWithoutAKeyIsNotTaken(t *testing.T) {
	own, err := keys.Generate()
	if err != nil {
		t.Fatal(err)
	}
	h, _ := settingsHandler(t, own)
	p := newPush(textOf(t, 1, "one").Text)
	p.send(h)
	if p.response.Code != http.StatusNotFound {
		t.Errorf("got %d", p.response.Code)
	}
}

// The report says what is in effect, so that the manager knows what to send, and has
// another tag then.
func TestReportHasTheSettings(t *testing.T) {
	h, live := settingsHandler(t, sharedKeys(t))
	report := func() (report adapterapi.Report, tag string) {
		got := read(t, h)
		if err := json.Unmarshal(got.Body.Bytes(), &report); err != nil {
			t.Fatal(err)
		}
		return report, got.Header().Get("ETag")
	}
	before, firstTag := report()
	if diff := cmp.Diff(&adapterapi.SettingsState{Version: 1}, before.Settings); diff != "" {
		t.Errorf("before (-want +got):\n%s", diff)
	}
	d := textOf(t, 3, "three")
	if err := live.Take([]byte(d.Text)); err != nil {
		t.Fatal(err)
	}
	after, secondTag := report()
	if diff := cmp.Diff(&adapterapi.SettingsState{Version: 1, Generation: 3, Digest: d.Digest}, after.Settings); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
	if firstTag == secondTag {
		t.Error("the tag is the same")
	}
}

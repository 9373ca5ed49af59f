package admin

import (
	"encoding/json"
	"maps"
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
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
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

func newPush(text string) *push { return kinds["settings"].push(text) }

// pushHandler returns a handler, and where the pushed documents go.
func pushHandler(held *keys.Keys) (http.Handler, *settings.Live, *access.Gate, *roster.Roster) {
	live, gate, pods := settings.New(settings.Options{}), access.New(access.Options{Ring: held.Ring, Required: true}), roster.New()
	return Handler(Options{
		State: newSource(keeper.State{Ready: true}).get, Sessions: func() adapterapi.Sessions { return adapterapi.Sessions{} }, Keys: held, Settings: live, Access: gate, Peers: pods, Metrics: http.NotFoundHandler(),
	}), live, gate, pods
}

func sharedKeys(t *testing.T) *keys.Keys {
	t.Helper()
	held, err := keys.New(adapterapi.Keyring{Current: serverKey}, podUID)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// pushRow is a push that a test has spoiled, and its answer.
type pushRow struct {
	spoil  func(p *push)
	status int
	signed bool
	want   string // in the answer
}

// pushKind is a kind of document that the manager pushes.
type pushKind struct {
	path     string
	subject  func(podUID string) adapterapi.Subject
	other    func(podUID string) adapterapi.Subject // of the other kind
	document func(t *testing.T, generation int64) adapterapi.Document
	most     int // bytes
	tooLarge string
	rows     func(t *testing.T) map[string]pushRow // of this kind alone
}

var kinds = map[string]*pushKind{
	"settings": {
		path: adapterapi.PathSettings, subject: adapterapi.SettingsSubject, other: adapterapi.AccessPushSubject,
		document: func(t *testing.T, generation int64) adapterapi.Document { return textOf(t, generation, "host") },
		most:     adapterapi.MaxSettingsBytes, tooLarge: "settings may have at most 524288 bytes",
		rows: func(t *testing.T) map[string]pushRow {
			return map[string]pushRow{
				"broken":                {put(`{"version":1,"generation":6}`), 422, true, "allowedHosts is empty"},
				"what no header can be": {put(textOf(t, 6, "a/b").Text), 422, true, "can never match"},
			}
		},
	},
	"access": {
		path: adapterapi.PathAccess, subject: adapterapi.AccessPushSubject, other: adapterapi.SettingsSubject,
		document: func(t *testing.T, generation int64) adapterapi.Document { return accessOf(t, generation, serverKey) },
		most:     adapterapi.MaxAccessBytes, tooLarge: "an access document may have at most 458752 bytes",
		rows: func(t *testing.T) map[string]pushRow {
			return map[string]pushRow{
				"broken":                  {put(`{}`), 422, true, "the signature is not that of the server's key"},
				"signed with another key": {put(accessOf(t, 6, adapterapi.NewKey()).Text), 422, true, "the signature is not that of the server's key"},
				"settings":                {put(textOf(t, 6, "six").Text), 422, true, "is not known to this adapter"},
			}
		},
	},
	"peers": {
		path: adapterapi.PathPeers, subject: adapterapi.PeersSubject, other: adapterapi.SettingsSubject,
		document: podsOf, most: adapterapi.MaxPeersBytes, tooLarge: "a list of pods may have at most 524288 bytes",
		rows: func(*testing.T) map[string]pushRow {
			return map[string]pushRow{"broken": {put(`{"version":1,"generation":6}`), 422, true, "it has none"}}
		},
	},
}

// podsOf is a list of pods.
func podsOf(t *testing.T, generation int64) adapterapi.Document {
	t.Helper()
	list, err := adapterapi.Peers{Version: adapterapi.PeersVersion, Generation: generation, Pods: []adapterapi.PeerPod{{UID: podUID}}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func (k *pushKind) push(text string) *push {
	return &push{key: serverKey, subject: k.subject(podUID), at: time.Now(), path: k.path, sealed: text, body: text}
}

// put has a push bring another text.
func put(text string) func(*push) { return func(p *push) { p.body, p.sealed = text, text } }

// allRows has a row for each answer to a push of the kind. In effect is generation 5, and generation 6 is pushed.
func (k *pushKind) allRows(t *testing.T) map[string]pushRow {
	has, next := k.document(t, 5), k.document(t, 6)
	rows := map[string]pushRow{
		"a newer document":           {func(*push) {}, 200, true, next.Digest},
		"no proof":                   {func(p *push) { p.noProof = true }, 401, false, "needs a proof"},
		"another key":                {func(p *push) { p.key = adapterapi.NewKey() }, 401, false, "needs a proof"},
		"another pod's":              {func(p *push) { p.subject.PodUID = "another" }, 401, false, "needs a proof"},
		"a proof for reading":        {func(p *push) { p.subject = adapterapi.CatalogSubject(podUID) }, 401, false, "needs a proof"},
		"a key for reading":          {func(p *push) { p.subject.Use = adapterapi.UseCatalog }, 401, false, "needs a proof"},
		"a proof for the other kind": {func(p *push) { p.subject = k.other(podUID) }, 401, false, "needs a proof"},
		"a key for the other kind":   {func(p *push) { p.subject.Use = k.other(podUID).Use }, 401, false, "needs a proof"},
		"at the other kind's path":   {func(p *push) { p.path = otherPath(p.path) }, 401, false, "needs a proof"},
		"expired":                    {func(p *push) { p.at = p.at.Add(-adapterapi.Window - time.Second) }, 401, false, "needs a proof"},
		"from the future":            {func(p *push) { p.at = p.at.Add(adapterapi.Window + 2*time.Second) }, 401, false, "needs a proof"},
		"no seal":                    {func(p *push) { p.noSeal = true }, 401, true, "is not that of this body"},
		"another body's seal":        {func(p *push) { p.sealed = has.Text }, 401, true, "is not that of this body"},
		"too large":                  {put(strings.Repeat(" ", k.most+1)), 413, true, k.tooLarge},
		"older":                      {put(k.document(t, 4).Text), 409, true, has.Digest},
		"what it has":                {put(has.Text), 200, true, has.Digest},
	}
	maps.Copy(rows, k.rows(t))
	return rows
}

func otherPath(path string) string {
	if path == adapterapi.PathSettings {
		return adapterapi.PathAccess
	}
	return adapterapi.PathSettings
}

func TestPush(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			has, next := kind.document(t, 5), kind.document(t, 6)
			for name, row := range kind.allRows(t) {
				t.Run(name, func(t *testing.T) {
					h, live, gate, pods := pushHandler(sharedKeys(t))
					kind.push(has.Text).send(h)
					p := kind.push(next.Text)
					row.spoil(p)
					p.send(h)
					if p.response.Code != row.status || p.signed != row.signed || !strings.Contains(p.response.Body.String(), row.want) {
						t.Errorf("got %d %s, signed %t, want %d with %q, signed %t", p.response.Code, p.response.Body, p.signed, row.status, row.want, row.signed)
					}
					want := has.Digest
					if name == "a newer document" {
						want = next.Digest
					}
					// The other kinds have no document, neither before nor after.
					if got := live.State().Digest + gate.State().Digest + pods.State().Digest; got != want {
						t.Errorf("in effect is %s, want %s", got, want)
					}
				})
			}
		})
	}
}

// What was seen on the network can be shown again for a while, and then undoes nothing.
func TestReplayedPush(t *testing.T) {
	h, live, _, _ := pushHandler(sharedKeys(t))
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
	h, _, _, _ := pushHandler(sharedKeys(t))
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
	h, _, _, _ := pushHandler(own)
	p := newPush(textOf(t, 1, "one").Text)
	p.send(h)
	if p.response.Code != http.StatusNotFound {
		t.Errorf("got %d", p.response.Code)
	}
}

// A request for the catalog that names the list in effect renews it.
func TestCatalogRenewsTheListOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, _, pods := pushHandler(sharedKeys(t))
		if err := pods.Take([]byte(podsOf(t, 5).Text)); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			header string
			want   time.Duration // age of the list
		}{{"", time.Second}, {"4", 2 * time.Second}, {"5", 0}, {"x", time.Second}} {
			time.Sleep(time.Second)
			got := read(t, h, adapterapi.HeaderPeers, step.header)
			if age := pods.Age(); age != step.want {
				t.Errorf("after %q the list is %s old, want %s", step.header, age, step.want)
			}
			var report adapterapi.Report
			if err := json.Unmarshal(got.Body.Bytes(), &report); err != nil || report.Peers == nil || report.Peers.Generation != 5 {
				t.Errorf("the report says %s, %v", got.Body, err)
			}
		}
	})
}

// An adapter that passes no requests on takes no list.
func TestNoListOfPods(t *testing.T) {
	h := Handler(Options{
		State: newSource(keeper.State{Ready: true}).get, Sessions: func() adapterapi.Sessions { return adapterapi.Sessions{} }, Keys: sharedKeys(t),
		Settings: settings.New(settings.Options{}), Access: access.New(access.Options{}), Metrics: http.NotFoundHandler(),
	})
	p := kinds["peers"].push(podsOf(t, 1).Text)
	p.send(h)
	if p.response.Code != http.StatusMethodNotAllowed {
		t.Errorf("got %d", p.response.Code)
	}
	var report adapterapi.Report
	if got := read(t, h, adapterapi.HeaderPeers, "1"); json.Unmarshal(got.Body.Bytes(), &report) != nil || report.Peers != nil {
		t.Errorf("the report says %s", got.Body)
	}
}

// The report says what is in effect, so that the manager knows what to send, and has
// another tag then.
func TestReportHasTheSettings(t *testing.T) {
	h, live, _, _ := pushHandler(sharedKeys(t))
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

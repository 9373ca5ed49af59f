package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/internal/sidecar/settings"
)

// source is a state that tests change.
type source struct {
	mu      sync.Mutex
	state   keeper.State
	changed chan struct{}
}

func newSource(state keeper.State) *source {
	return &source{state: state, changed: make(chan struct{})}
}

func (s *source) get() (keeper.State, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.changed
}

func (s *source) set(state keeper.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
	old := s.changed
	s.changed = make(chan struct{})
	close(old)
}

const podUID = "11111111-2222-3333-4444-555555555555"

var serverKey = adapterapi.NewKey()

func newHandler(s *source) http.Handler {
	held, err := keys.New(adapterapi.Keyring{Current: serverKey}, podUID)
	if err != nil {
		panic(err)
	}
	return Handler(Options{
		State: s.get, Sessions: func() adapterapi.Sessions { return adapterapi.Sessions{Open: 3, Limit: 20, Spares: 2} },
		Processes: func() adapterapi.Processes { return adapterapi.Processes{Ended: 2, Crashed: 1, Cause: "exit code 3"} }, Keys: held, Settings: settings.New(settings.Options{}), Access: access.New(access.Options{}),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { say(w, 200, "metrics") }),
	})
}

// proof is the header of a request for the catalog.
func proof(key adapterapi.Key, pod string, at time.Time) []string {
	_, header := adapterapi.NewProof(key, adapterapi.CatalogSubject(pod), at)
	return []string{adapterapi.HeaderProof, header}
}

// read asks for the catalog as the manager does, and checks that the answer is signed.
func read(t *testing.T, h http.Handler, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	asked, header := adapterapi.NewProof(serverKey, adapterapi.CatalogSubject(podUID), time.Now())
	got := ask(h, "/catalog", append([]string{adapterapi.HeaderProof, header}, headers...)...)
	answer := adapterapi.Answer{
		Status: got.Code, ETag: got.Header().Get("ETag"), Sessions: got.Header().Get(adapterapi.HeaderSessions), Body: got.Body.Bytes(),
		Processes: got.Header().Get(adapterapi.HeaderProcesses), Keys: got.Header().Get(adapterapi.HeaderKeys),
	}
	if !asked.Opens(got.Header().Get(adapterapi.HeaderAnswer), answer) {
		t.Errorf("the answer %d %s is not signed", got.Code, got.Body)
	}
	return got
}

func ask(h http.Handler, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAnswers(t *testing.T) {
	down := newHandler(newSource(keeper.State{Err: errors.New("exit code 3"), Reason: adapterapi.Exited}))
	up := newHandler(newSource(keeper.State{Ready: true, Catalog: &mcpprobe.Catalog{}}))
	for name, test := range map[string]struct {
		handler http.Handler
		target  string
		headers []string
		status  int
		want    string
	}{
		"live":                   {down, "/livez", nil, 200, "ok"},
		"R11 not ready":          {down, "/readyz", nil, 503, "exit code 3"},
		"ready":                  {up, "/readyz?wait=1.8s", nil, 200, "ok"},
		"wait is no duration":    {down, "/readyz?wait=x", nil, 400, "duration"},
		"wait is too long":       {down, "/readyz?wait=1h", nil, 400, "at most 10s"},
		"catalog, no proof":      {up, "/catalog", nil, 401, "proof"},
		"the key itself":         {up, "/catalog", []string{"Authorization", "Bearer " + serverKey.Encode()}, 401, "proof"},
		"the key as proof":       {up, "/catalog", []string{adapterapi.HeaderProof, serverKey.Encode()}, 401, "proof"},
		"proof of another key":   {up, "/catalog", proof(adapterapi.NewKey(), podUID, time.Now()), 401, "proof"},
		"another pod's proof":    {up, "/catalog", proof(serverKey, "another", time.Now()), 401, "proof"},
		"an old proof":           {up, "/catalog", proof(serverKey, podUID, time.Now().Add(-time.Minute)), 401, "proof"},
		"catalog":                {up, "/catalog", proof(serverKey, podUID, time.Now()), 200, `"ready":true,"catalog":{`},
		"catalog while it fails": {down, "/catalog", proof(serverKey, podUID, time.Now()), 200, `{"ready":false,"reason":"Exited","error":"exit code 3","settings":{"version":1,"generation":0},"access":{"version":1,"generation":0}}`},
		"metrics":                {up, "/metrics", nil, 200, "metrics"},
		"no such path":           {up, "/drain", nil, 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(test.handler, test.target, test.headers...)
			if got.Code != test.status || !strings.Contains(got.Body.String(), test.want) {
				t.Errorf("got %d %s, want %d with %q", got.Code, got.Body, test.status, test.want)
			}
		})
	}
}

type talkative struct{}

func (talkative) Error() string { return "exit code 3; last words: password=hunter2" }
func (talkative) Brief() string { return "exit code 3" }

// The readiness check does not show what a server wrote to standard error.
func TestReadinessIsDiscreet(t *testing.T) {
	h := newHandler(newSource(keeper.State{Err: fmt.Errorf("start: %w", talkative{})}))
	if got := ask(h, "/readyz"); strings.Contains(got.Body.String(), "hunter2") || !strings.Contains(got.Body.String(), "exit code 3") {
		t.Errorf("the kubelet reads %s", got.Body)
	}
	if got := read(t, h); !strings.Contains(got.Body.String(), "hunter2") {
		t.Errorf("the manager reads %s", got.Body)
	}
}

func TestCatalogWithoutAKeyIsNotServed(t *testing.T) {
	own, err := keys.Generate()
	if err != nil {
		t.Fatal(err)
	}
	h := Handler(Options{State: newSource(keeper.State{Ready: true}).get, Sessions: func() adapterapi.Sessions { return adapterapi.Sessions{} }, Keys: own, Metrics: http.NotFoundHandler()})
	if got := ask(h, "/catalog", proof(serverKey, podUID, time.Now())...); got.Code != http.StatusNotFound {
		t.Errorf("got %d", got.Code)
	}
}

// A manager that does not ask for the spares would not read what it gets.
func TestSparesAreToldToWhoAsks(t *testing.T) {
	h := newHandler(newSource(keeper.State{Ready: true}))
	for name, test := range map[string]struct {
		headers []string
		want    string
	}{
		"not asked":               {nil, "3/20/0"},
		"asked for something new": {[]string{adapterapi.HeaderSessions, "more"}, "3/20/0"},
		"asked":                   {[]string{adapterapi.HeaderSessions, adapterapi.SessionsWithSpares}, "3/20/0/2"},
	} {
		if got := read(t, h, test.headers...).Header().Get(adapterapi.HeaderSessions); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestCatalogIsSentOnce(t *testing.T) {
	s := newSource(keeper.State{Ready: true, Catalog: &mcpprobe.Catalog{}})
	h := newHandler(s)
	first := read(t, h)
	tag := first.Header().Get("ETag")
	again := read(t, h, "If-None-Match", tag)
	if again.Code != http.StatusNotModified || again.Body.Len() != 0 || again.Header().Get(adapterapi.HeaderSessions) != "3/20/0" {
		t.Errorf("got %d with %d bytes, sessions %q", again.Code, again.Body.Len(), again.Header().Get(adapterapi.HeaderSessions))
	}
	s.set(keeper.State{Err: errors.New("gone")})
	changed := read(t, h, "If-None-Match", tag)
	var report adapterapi.Report
	if err := json.Unmarshal(changed.Body.Bytes(), &report); err != nil || report.Ready || report.Error != "gone" {
		t.Errorf("got %d %s: %v", changed.Code, changed.Body, err)
	}
}

// A manager that does not know of processes would take a MAC over them for wrong.
func TestProcessesAreToldOnRequest(t *testing.T) {
	h := newHandler(newSource(keeper.State{Ready: true, Failures: 0}))
	tag := read(t, h).Header().Get("ETag")
	for name, test := range map[string]struct {
		headers []string
		want    string
	}{
		"not asked":            {nil, ""},
		"asked":                {[]string{adapterapi.HeaderProcesses, "wanted"}, "2/1/0/0/exit code 3"},
		"asked, and no change": {[]string{adapterapi.HeaderProcesses, "wanted", "If-None-Match", tag}, "2/1/0/0/exit code 3"},
	} {
		got := read(t, h, test.headers...)
		if said := got.Header().Get(adapterapi.HeaderProcesses); said != test.want || got.Header().Get("ETag") != tag {
			t.Errorf("%s: got %q, want %q", name, said, test.want)
		}
	}
}

// The same holds for the keys.
func TestKeysAreToldOnRequest(t *testing.T) {
	h := newHandler(newSource(keeper.State{Ready: true}))
	if said := read(t, h).Header().Get(adapterapi.HeaderKeys); said != "" {
		t.Errorf("not asked: %q", said)
	}
	if said := read(t, h, adapterapi.HeaderKeys, "wanted").Header().Get(adapterapi.HeaderKeys); said != serverKey.ID() {
		t.Errorf("asked: got %q, want %q", said, serverKey.ID())
	}
}

func TestFailuresAreReported(t *testing.T) {
	var report adapterapi.Report
	got := read(t, newHandler(newSource(keeper.State{Err: errors.New("exit code 3"), Reason: adapterapi.Exited, Failures: 2})))
	if err := json.Unmarshal(got.Body.Bytes(), &report); err != nil || report.Failures != 2 {
		t.Errorf("got %s, %v", got.Body, err)
	}
}

// The kubelet's check is held until the server is ready, or time is up.
func TestReadinessIsHeld(t *testing.T) {
	for name, test := range map[string]struct {
		readyAfter, took time.Duration
		status           int
	}{
		"until it is":  {time.Second, time.Second, 200},
		"with a limit": {time.Minute, 1800 * time.Millisecond, 503},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSource(keeper.State{Err: keeper.ErrStarting})
				h := newHandler(s)
				becomes := time.AfterFunc(test.readyAfter, func() { s.set(keeper.State{Ready: true}) })
				defer becomes.Stop()
				start := time.Now()
				got := ask(h, "/readyz?wait=1.8s")
				if took := time.Since(start); got.Code != test.status || took != test.took {
					t.Errorf("got %d after %s, want %d after %s", got.Code, took, test.status, test.took)
				}
			})
		})
	}
}

// The checks after which the kubelet takes the endpoint away report the loss of a server at once. Later
// checks wait for a change.
func TestLossIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(keeper.State{Ready: true})
		h := newHandler(s)
		start := time.Now()
		check := func(status int, at time.Duration) {
			t.Helper()
			got := ask(h, "/readyz?wait=1.8s")
			if now := time.Since(start); got.Code != status || now != at {
				t.Errorf("got %d at %s, want %d at %s", got.Code, now, status, at)
			}
		}
		check(200, 0)
		s.set(keeper.State{Err: errors.New("gone")})
		ask(h, "/readyz") // a request without ?wait does not affect those with it
		for range adapterapi.UnreadyAnswers {
			check(503, 0)
		}
		check(503, 1800*time.Millisecond)
		time.AfterFunc(time.Second, func() { s.set(keeper.State{Ready: true}) })
		check(200, 2800*time.Millisecond)
	})
}

func TestOtherPaths(t *testing.T) {
	h := newHandler(newSource(keeper.State{Ready: true}))
	for _, path := range []string{"/", "/health", "/livez/"} {
		w := ask(h, path)
		if got := w.Body.String(); w.Code != http.StatusNotFound || got != "there is nothing here; the paths are /livez, /readyz, /catalog, /sessions, /metrics\n" {
			t.Errorf("%s: %d %q", path, w.Code, got)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, adapterapi.PathLive, nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

package prober

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/admin"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
	"github.com/slipway-mcp/slipway/internal/sidecar/settings"
)

func settingsOf(t *testing.T, generation int64, host string) adapterapi.Document {
	t.Helper()
	document, err := adapterapi.Settings{Version: adapterapi.SettingsVersion, Generation: generation, AllowedHosts: []string{host}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return document
}

func stateOf(document adapterapi.Document) adapterapi.SettingsState {
	return adapterapi.SettingsState{Version: adapterapi.SettingsVersion, Generation: document.Generation, Digest: document.Digest}
}

func with(document adapterapi.Document) func(*Instance) {
	return func(i *Instance) { i.Settings = document }
}

// adapterWith answers as an adapter that goes by the settings, whichever those are.
func (w *world) adapterWith(inEffect *atomic.Pointer[adapterapi.SettingsState]) {
	w.onFetch(func(context.Context, Instance, string) (reply, error) {
		r := good("1", 0)
		if r.settings = inEffect.Load(); r.settings != nil {
			r.etag = `"` + r.settings.Digest + `"`
		}
		return r, nil
	})
	w.onPush(func(_ context.Context, i Instance) (adapterapi.SettingsState, error) {
		state := stateOf(i.Settings)
		inEffect.Store(&state)
		return state, nil
	})
}

func (w *world) onPush(f func(ctx context.Context, i Instance) (adapterapi.SettingsState, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pushF = f
}

func TestSettingsAreSentAtOnce(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		var inEffect atomic.Pointer[adapterapi.SettingsState]
		one, two, three := settingsOf(t, 1, "one"), settingsOf(t, 2, "two"), settingsOf(t, 3, "three")
		state := stateOf(one)
		inEffect.Store(&state)
		w.adapterWith(&inEffect)
		w.Watch(alpha, []Instance{pod("a", with(one))})
		if got := kinds(w.take()); got != "v@0 c@0 " {
			t.Errorf("an adapter that has them: %s", got)
		}
		w.pass(3 * time.Second)
		w.Watch(alpha, []Instance{pod("a", with(two))})
		if got := kinds(w.take()); got != "s@3 c@3 " {
			t.Errorf("another document: %s", got)
		}
		if got := inEffect.Load().Generation; got != 2 {
			t.Errorf("generation %d is in effect", got)
		}
		// The interval is what it was: another document is no answer in vain.
		w.pass(12 * time.Second)
		if got := kinds(w.take()); !strings.HasPrefix(got, "c@1") || strings.Count(got, "@") != 1 {
			t.Errorf("then: %s", got)
		}
		// An adapter that was restarted has what its volume had, and says so.
		state = stateOf(one)
		inEffect.Store(&state)
		w.pass(12 * time.Second)
		if got := kinds(w.take()); !strings.HasPrefix(got, "c@") || !strings.Contains(got, " s@") || inEffect.Load().Generation != 2 {
			t.Errorf("after a restart: %s, generation %d", got, inEffect.Load().Generation)
		}
		// One that has newer settings has them from another manager.
		state = stateOf(three)
		inEffect.Store(&state)
		w.pass(25 * time.Second)
		if got := kinds(w.take()); strings.Contains(got, "s@") || inEffect.Load().Generation != 3 {
			t.Errorf("newer settings: %s, generation %d", got, inEffect.Load().Generation)
		}
	})
}

// An adapter of an earlier template has no settings, and is not sent what it cannot take.
func TestAdapterThatTakesNoSettings(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.onPush(func(context.Context, Instance) (adapterapi.SettingsState, error) {
			t.Error("it was sent settings")
			return adapterapi.SettingsState{}, nil
		})
		w.Watch(alpha, []Instance{pod("a", with(settingsOf(t, 1, "one")))})
		w.pass(30 * time.Second)
		w.Watch(alpha, []Instance{pod("a", with(settingsOf(t, 2, "two")))})
		w.pass(30 * time.Second)
	})
}

func TestSettingsAreSentAgain(t *testing.T) {
	var told []string
	log := funcr.New(func(_, args string) { told = append(told, args) }, funcr.Options{})
	inWorld(t, Options{Log: log}, func(t *testing.T, w *world) {
		var inEffect atomic.Pointer[adapterapi.SettingsState]
		inEffect.Store(&adapterapi.SettingsState{Version: 1})
		w.adapterWith(&inEffect)
		w.onPush(func(context.Context, Instance) (adapterapi.SettingsState, error) {
			return adapterapi.SettingsState{}, &mcpprobe.Error{Class: mcpprobe.Unreachable, Op: "settings"}
		})
		w.Watch(alpha, []Instance{pod("a", with(settingsOf(t, 1, "one")))})
		w.pass(100 * time.Second)
		sent, asked := 0, 0
		for _, q := range w.take() {
			switch q.kind {
			case kindPush:
				sent++
			case kindCatalog:
				asked++
			}
		}
		// Half a second later, then 1 s, 2 s, 4 s, 8 s, 16 s, and 30 s from then on.
		if sent < 8 || sent > 10 || asked < sent {
			t.Errorf("sent %d times and asked %d times in 100 s", sent, asked)
		}
		if len(told) != 1 || !strings.Contains(told[0], "does not take its settings") {
			t.Errorf("the log has %q", told)
		}
		w.adapterWith(&inEffect)
		w.Watch(alpha, []Instance{pod("a", with(settingsOf(t, 2, "two")))}) // which does not wait for the next time
		if got := kinds(w.take()); got != "s@100 c@100 " || inEffect.Load().Generation != 2 {
			t.Errorf("another document: %s, generation %d", got, inEffect.Load().Generation)
		}
	})
}

// Settings that change while an instance is being asked are sent right after.
func TestSettingsChangeMeanwhile(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		var inEffect atomic.Pointer[adapterapi.SettingsState]
		state := stateOf(settingsOf(t, 1, "one"))
		inEffect.Store(&state)
		w.adapterWith(&inEffect)
		w.Watch(alpha, []Instance{pod("a", with(settingsOf(t, 1, "one")))})
		w.take()
		w.pass(time.Second)
		w.onPush(func(_ context.Context, i Instance) (adapterapi.SettingsState, error) {
			time.Sleep(time.Second)
			state := stateOf(i.Settings)
			inEffect.Store(&state)
			return state, nil
		})
		w.Watch(alpha, []Instance{pod("a", with(settingsOf(t, 2, "two")))})
		synctest.Wait()
		w.Watch(alpha, []Instance{pod("a", with(settingsOf(t, 3, "three")))})
		w.pass(1500 * time.Millisecond)
		if got := kinds(w.take()); got != "s@1 c@2 s@2 " {
			t.Errorf("got %s", got)
		}
		w.pass(time.Second)
		if got := inEffect.Load().Generation; got != 3 {
			t.Errorf("generation %d is in effect", got)
		}
	})
}

// One that does not take settings in time has had its time: others come first, and then
// it is asked.
func TestSettingsThatAreNotAnswered(t *testing.T) {
	inWorld(t, Options{Workers: 1}, func(t *testing.T, w *world) {
		var inEffect atomic.Pointer[adapterapi.SettingsState]
		inEffect.Store(&adapterapi.SettingsState{Version: 1})
		w.adapterWith(&inEffect)
		w.onPush(func(ctx context.Context, _ Instance) (adapterapi.SettingsState, error) {
			<-ctx.Done()
			return adapterapi.SettingsState{}, lostPush(ctx, ctx.Err())
		})
		w.Watch(alpha, []Instance{pod("a", with(settingsOf(t, 1, "one")))})
		w.pass(time.Second)
		w.Watch(serverName("beta"), []Instance{pod("b")})
		w.pass(4200 * time.Millisecond)
		var order strings.Builder
		for _, q := range w.take() {
			order.WriteString(string(q.uid) + ":" + kinds([]asked{q}))
		}
		if got := order.String(); got != "a:v@0 a:c@0 a:s@0 b:v@5 b:c@5 a:c@5 " {
			t.Errorf("got %s", got)
		}
		w.wantOutcome("a", Verified, "")
	})
}

// A real adapter has a changed document in effect, and answers clients by it.
func TestRealAdapterIsSentSettings(t *testing.T) {
	t.Parallel()
	p := newPods(t)
	catalog := catalogOf(t, allCapabilities, nil)
	held, err := keys.New(adapterapi.Keyring{Current: key}, podUID)
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan int64, 8)
	live := settings.New(settings.Options{Changed: func(v *settings.Values) { taken <- v.Generation }})
	adapter := admin.Handler(admin.Options{
		State: func() (keeper.State, <-chan struct{}) { return keeper.State{Ready: true, Catalog: catalog}, nil }, Sessions: func() adapterapi.Sessions { return adapterapi.Sessions{} }, Processes: func() adapterapi.Processes { return adapterapi.Processes{} },
		Keys: held, Settings: live, Metrics: http.NotFoundHandler(),
	})
	prober, _ := p.run(Options{})
	instance := p.add("real", sdkServer(), adapter)
	instance.Interval = time.Hour // nothing but the change can be what sends it
	instance.Settings = settingsOf(t, 1, "one.example")
	prober.Watch(serverName("real"), []Instance{instance})
	if got := <-taken; got != 1 {
		t.Errorf("generation %d was taken first", got)
	}
	eventually(t, prober, "real", "verified", func(r Result) bool { return r.Outcome == Verified && r.Catalog != nil })
	check := func(host string) error {
		r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
		r.Host = host
		return live.Origins().Check(r, &origin.Names{})
	}
	if one, two := check("one.example"), check("two.example"); one != nil || two == nil {
		t.Errorf("before: %v, %v", one, two)
	}
	instance.Settings = settingsOf(t, 2, "two.example")
	prober.Watch(serverName("real"), []Instance{instance})
	if got := <-taken; got != 2 {
		t.Errorf("generation %d was taken then", got)
	}
	if one, two := check("one.example"), check("two.example"); one == nil || two != nil {
		t.Errorf("after: %v, %v", one, two)
	}
}

// The manager does not believe a process that answers in the adapter's place.
func TestPushAnswers(t *testing.T) {
	p := newPods(t)
	document := settingsOf(t, 7, "seven")
	ring := adapterapi.Keyring{Current: key}
	answering := func(status int, body string, sign bool) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			proof, ok := ring.Verify(r.Header.Get(adapterapi.HeaderProof), adapterapi.SettingsSubject(podUID), time.Now())
			if !ok || r.Method != http.MethodPut || r.URL.Path != adapterapi.PathSettings || !proof.OpensBody(r.Header.Get(adapterapi.HeaderBody), []byte(document.Text)) {
				t.Errorf("got %s %s that proves nothing", r.Method, r.URL)
			}
			if sign {
				w.Header().Set(adapterapi.HeaderAnswer, proof.Seal(adapterapi.Answer{Status: status, Body: []byte(body)}))
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})
	}
	asker := newAsker(Options{ClientPort: p.clientPort, AdminPort: p.adminPort})
	defer asker.close()
	for name, test := range map[string]struct {
		adapter http.Handler
		class   mcpprobe.Class // empty if it is taken
		want    int64
	}{
		"taken":            {answering(200, `{"version":1,"generation":7,"digest":"d"}`, true), "", 7},
		"has newer ones":   {answering(409, `{"version":1,"generation":8,"digest":"d"}`, true), "", 8},
		"not signed":       {answering(200, `{"version":1,"generation":7}`, false), mcpprobe.Unreachable, 0},
		"an older adapter": {http.NotFoundHandler(), mcpprobe.Unreachable, 0},
		"refused":          {answering(422, "verbosity is 9", true), mcpprobe.Protocol, 0},
		"no answer of one": {answering(200, "ok", true), mcpprobe.Protocol, 0},
		"nobody there":     {nil, mcpprobe.Unreachable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			instance := p.add(name, nil, test.adapter)
			instance.Settings = document
			state, err := asker.push(t.Context(), instance)
			if (err == nil) != (test.class == "") || err != nil && mcpprobe.ClassOf(err) != test.class || err == nil && state.Generation != test.want {
				t.Errorf("got %+v, %v, want %q and generation %d", state, err, test.class, test.want)
			}
		})
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := asker.push(canceled, p.add("canceled", nil, nil))
	if e, ok := errors.AsType[*mcpprobe.Error](err); !ok || e.Class != mcpprobe.Canceled {
		t.Errorf("got %v", err)
	}
}

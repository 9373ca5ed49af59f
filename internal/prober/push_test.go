package prober

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/promise"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
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

func accessOf(t *testing.T, generation int64, tool string) adapterapi.Document {
	t.Helper()
	document, err := adapterapi.Access{
		Version: adapterapi.AccessVersion, Generation: generation, Mode: adapterapi.AccessNone, Hidden: []string{tool},
		Audit: adapterapi.AccessAudit{Level: adapterapi.AuditNone, WhenFull: adapterapi.AuditDrop},
	}.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// documentOf is a document of a kind.
func documentOf(t *testing.T, kind documentKind, generation int64, content string) adapterapi.Document {
	t.Helper()
	if kind == accessDocument {
		return accessOf(t, generation, content)
	}
	return settingsOf(t, generation, content)
}

func stateOf(document adapterapi.Document) *adapterapi.AccessState {
	return &adapterapi.AccessState{Version: 1, Generation: document.Generation, Digest: document.Digest}
}

func with(kind documentKind, document adapterapi.Document) func(*Instance) {
	return func(i *Instance) {
		if kind == accessDocument {
			i.Access = document
		} else {
			i.Settings = document
		}
	}
}

// eachKind runs a test for each kind of document that the controller makes.
func eachKind(t *testing.T, options Options, test func(t *testing.T, w *world, kind documentKind)) {
	for _, kind := range []documentKind{accessDocument, settingsDocument} {
		t.Run(documents[kind].name, func(t *testing.T) {
			inWorld(t, options, func(t *testing.T, w *world) { test(t, w, kind) })
		})
	}
}

// adapterWith answers as an adapter that goes by the document, whichever that is.
func (w *world) adapterWith(kind documentKind, inEffect *atomic.Pointer[adapterapi.AccessState]) {
	w.onFetch(func(context.Context, Instance, string) (reply, error) {
		r := good("1", 0)
		state := inEffect.Load()
		if state == nil {
			return r, nil
		}
		r.etag = `"` + state.Digest + `"`
		if kind == accessDocument {
			r.access = state
		} else {
			r.settings = &adapterapi.SettingsState{Version: state.Version, Generation: state.Generation, Digest: state.Digest}
		}
		return r, nil
	})
	w.onPush(func(_ context.Context, i Instance, kind documentKind) (adapterapi.AccessState, error) {
		state := stateOf(i.document(kind))
		inEffect.Store(state)
		return *state, nil
	})
}

func (w *world) onPush(f func(ctx context.Context, i Instance, kind documentKind) (adapterapi.AccessState, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pushF = f
}

// sends is a question of which documents, as kinds writes it.
func sends(kind documentKind) string { return documents[kind].name[:1] }

func TestDocumentsAreSentAtOnce(t *testing.T) {
	eachKind(t, Options{}, func(t *testing.T, w *world, kind documentKind) {
		var inEffect atomic.Pointer[adapterapi.AccessState]
		one, two, three := documentOf(t, kind, 1, "one"), documentOf(t, kind, 2, "two"), documentOf(t, kind, 3, "three")
		inEffect.Store(stateOf(one))
		w.adapterWith(kind, &inEffect)
		w.Watch(alpha, []Instance{pod("a", with(kind, one))})
		if got := kinds(w.take()); got != "v@0 c@0 " {
			t.Errorf("an adapter that has it: %s", got)
		}
		w.pass(3 * time.Second)
		w.Watch(alpha, []Instance{pod("a", with(kind, two))})
		if got := kinds(w.take()); got != sends(kind)+"@3 c@3 " {
			t.Errorf("another document: %s", got)
		}
		w.pass(promise.AccessPushed)
		if got := inEffect.Load().Generation; got != 2 {
			t.Errorf("generation %d is in effect", got)
		}
		// The interval is what it was: an answer after another document does not make it longer.
		w.pass(12 * time.Second)
		if got := kinds(w.take()); !strings.HasPrefix(got, "c@1") || strings.Count(got, "@") != 1 {
			t.Errorf("then: %s", got)
		}
		// An adapter that was restarted has what its volume had, and says so.
		inEffect.Store(stateOf(one))
		w.pass(12 * time.Second)
		if got := kinds(w.take()); !strings.HasPrefix(got, "c@") || !strings.Contains(got, " "+sends(kind)+"@") || inEffect.Load().Generation != 2 {
			t.Errorf("after a restart: %s, generation %d", got, inEffect.Load().Generation)
		}
		// One that has a newer document has it from another manager.
		inEffect.Store(stateOf(three))
		w.pass(25 * time.Second)
		if got := kinds(w.take()); strings.Contains(got, sends(kind)+"@") || inEffect.Load().Generation != 3 {
			t.Errorf("newer document: %s, generation %d", got, inEffect.Load().Generation)
		}
	})
}

// Both documents change at once, and one of them is lost.
func TestBothDocumentsAreSent(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		var access, settings atomic.Pointer[adapterapi.AccessState]
		access.Store(stateOf(accessOf(t, 1, "one")))
		settings.Store(stateOf(settingsOf(t, 1, "one")))
		w.onFetch(func(context.Context, Instance, string) (reply, error) {
			r := good("1", 0)
			r.access = access.Load()
			r.settings = &adapterapi.SettingsState{Version: 1, Generation: settings.Load().Generation, Digest: settings.Load().Digest}
			r.etag = r.access.Digest + r.settings.Digest
			return r, nil
		})
		lost := true
		w.onPush(func(_ context.Context, i Instance, kind documentKind) (adapterapi.AccessState, error) {
			if kind == settingsDocument && lost {
				lost = false
				return adapterapi.AccessState{}, &mcpprobe.Error{Class: mcpprobe.Unreachable, Op: "settings"}
			}
			[documentKinds]*atomic.Pointer[adapterapi.AccessState]{&access, &settings}[kind].Store(stateOf(i.document(kind)))
			return *stateOf(i.document(kind)), nil
		})
		w.Watch(alpha, []Instance{pod("a", with(accessDocument, accessOf(t, 1, "one")), with(settingsDocument, settingsOf(t, 1, "one")))})
		w.take()
		w.pass(3 * time.Second)
		w.Watch(alpha, []Instance{pod("a", with(accessDocument, accessOf(t, 2, "two")), with(settingsDocument, settingsOf(t, 2, "two")))})
		if got := kinds(w.take()); got != "a@3 s@3 c@3 " {
			t.Errorf("at once: %s", got)
		}
		w.pass(time.Second)
		if got := kinds(w.take()); got != "s@3 c@3 " && got != "s@4 c@4 " {
			t.Errorf("again: %s", got)
		}
		if access.Load().Generation != 2 || settings.Load().Generation != 2 {
			t.Errorf("in effect: %+v, %+v", access.Load(), settings.Load())
		}
	})
}

// What an adapter enforces is in its result, at once and with word of it.
func TestAccessInResults(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		var inEffect atomic.Pointer[adapterapi.AccessState]
		w.adapterWith(accessDocument, &inEffect)
		one, two := accessOf(t, 1, "one"), accessOf(t, 2, "two")
		w.Watch(alpha, []Instance{pod("a", with(accessDocument, one))})
		w.pass(time.Second)
		if got := w.result("a"); got.Report == nil || got.Access != nil {
			t.Errorf("of an adapter that enforces nothing: %+v", got)
		}
		inEffect.Store(stateOf(one))
		w.pass(12 * time.Second)
		if diff := cmp.Diff(&Access{Version: 1, Generation: 1, Digest: one.Digest}, w.result("a").Access); diff != "" {
			t.Errorf("at first (-want +got):\n%s", diff)
		}
		w.takeTold()
		w.Watch(alpha, []Instance{pod("a", with(accessDocument, two))})
		synctest.Wait()
		if got := w.result("a").Access; got == nil || got.Digest != two.Digest || w.takeTold() != 1 {
			t.Errorf("after a change: %+v", got)
		}
		// The answer to a push is enough if the report is not available.
		w.onFetch(func(context.Context, Instance, string) (reply, error) { return reply{}, class(mcpprobe.Busy) })
		three := accessOf(t, 3, "three")
		w.Watch(alpha, []Instance{pod("a", with(accessDocument, three))})
		synctest.Wait()
		if got := w.result("a").Access; got == nil || got.Digest != three.Digest || w.takeTold() != 1 {
			t.Errorf("after a change without a report: %+v", got)
		}
		// The prober reports a token of an unknown key once.
		w.adapterWith(accessDocument, &inEffect)
		unknown := *stateOf(three)
		unknown.UnknownKeys = []string{"corp", "agency"}
		inEffect.Store(&unknown)
		w.onFetch(func(context.Context, Instance, string) (reply, error) {
			r := good("1", 0)
			r.etag, r.access = `"unknown"`, &unknown
			return r, nil
		})
		w.pass(60 * time.Second)
		if got := w.result("a").Access; got == nil || got.UnknownKeys != "agency corp" || w.takeTold() != 1 {
			t.Errorf("with unknown keys: %+v", got)
		}
	})
}

// The manager learns of an unknown key early enough to fetch it, and to send pods the document with it, within
// the promised time. A second of that time is for the fetch, the reconciliation and the push.
func TestUnknownKeyIsToldInTime(t *testing.T) {
	for range 20 { // each interval is another
		inWorld(t, Options{}, func(t *testing.T, w *world) {
			var current atomic.Pointer[adapterapi.AccessState]
			current.Store(stateOf(accessOf(t, 1, "one")))
			w.onFetch(func(context.Context, Instance, string) (reply, error) {
				r, state := good("1", 0), current.Load()
				r.etag, r.access = `"`+strings.Join(state.UnknownKeys, " ")+`"`, state
				return r, nil
			})
			w.Watch(alpha, []Instance{pod("a", with(accessDocument, accessOf(t, 1, "one")))})
			w.pass(time.Minute)
			w.take()
			for len(w.take()) == 0 { // at worst, it was just asked
				w.pass(time.Millisecond)
			}
			w.takeTold()
			unknown := *current.Load()
			unknown.UnknownKeys = []string{"corp"}
			current.Store(&unknown)
			w.pass(promise.NewKey - time.Second)
			if got := w.result("a").Access; got == nil || got.UnknownKeys != "corp" || w.takeTold() != 1 {
				t.Errorf("after %s: %+v", promise.NewKey-time.Second, got)
			}
		})
	}
}

// What an adapter says of its document is bounded.
func TestBoundAccess(t *testing.T) {
	long := strings.Repeat("x", 1000)
	got := boundAccess(&adapterapi.AccessState{Digest: long, UnknownKeys: append([]string{"a\nb" + long}, slices.Repeat([]string{long}, 100)...)})
	if len(got.Digest) > maxDigest || len(got.UnknownKeys) > maxUnknownKeys*(maxIssuerName+1) || strings.Contains(got.UnknownKeys, "\n") {
		t.Errorf("got %+v", got)
	}
}

// An adapter of an earlier template takes no documents, and is not sent what it cannot take.
func TestAdapterThatTakesNoDocuments(t *testing.T) {
	eachKind(t, Options{}, func(t *testing.T, w *world, kind documentKind) {
		w.onPush(func(context.Context, Instance, documentKind) (adapterapi.AccessState, error) {
			t.Error("it was sent a document")
			return adapterapi.AccessState{}, nil
		})
		w.Watch(alpha, []Instance{pod("a", with(kind, documentOf(t, kind, 1, "one")))})
		w.pass(30 * time.Second)
		w.Watch(alpha, []Instance{pod("a", with(kind, documentOf(t, kind, 2, "two")))})
		w.pass(30 * time.Second)
	})
}

func TestDocumentsAreSentAgain(t *testing.T) {
	var told []string
	log := funcr.New(func(_, args string) { told = append(told, args) }, funcr.Options{})
	eachKind(t, Options{Log: log}, func(t *testing.T, w *world, kind documentKind) {
		told = nil
		var inEffect atomic.Pointer[adapterapi.AccessState]
		inEffect.Store(&adapterapi.AccessState{Version: 1})
		w.adapterWith(kind, &inEffect)
		w.onPush(func(context.Context, Instance, documentKind) (adapterapi.AccessState, error) {
			return adapterapi.AccessState{}, &mcpprobe.Error{Class: mcpprobe.Unreachable, Op: documents[kind].name}
		})
		w.Watch(alpha, []Instance{pod("a", with(kind, documentOf(t, kind, 1, "one")))})
		w.pass(100 * time.Second)
		sent, asked := 0, 0
		for _, q := range w.take() {
			switch q.kind {
			case documents[kind].name:
				sent++
			case kindCatalog:
				asked++
			}
		}
		// Half a second later, then 1 s, 2 s, 4 s, 8 s, 16 s, and 30 s from then on.
		if sent < 8 || sent > 10 || asked < sent {
			t.Errorf("sent %d times and asked %d times in 100 s", sent, asked)
		}
		if len(told) != 1 || !strings.Contains(told[0], "does not take its "+documents[kind].name) {
			t.Errorf("the log has %q", told)
		}
		w.adapterWith(kind, &inEffect)
		w.Watch(alpha, []Instance{pod("a", with(kind, documentOf(t, kind, 2, "two")))}) // which does not wait for the next time
		if got := kinds(w.take()); got != sends(kind)+"@100 c@100 " || inEffect.Load().Generation != 2 {
			t.Errorf("another document: %s, generation %d", got, inEffect.Load().Generation)
		}
	})
}

// A document that changes while an instance is being asked is sent right after.
func TestDocumentChangesMeanwhile(t *testing.T) {
	eachKind(t, Options{}, func(t *testing.T, w *world, kind documentKind) {
		var inEffect atomic.Pointer[adapterapi.AccessState]
		inEffect.Store(stateOf(documentOf(t, kind, 1, "one")))
		w.adapterWith(kind, &inEffect)
		w.Watch(alpha, []Instance{pod("a", with(kind, documentOf(t, kind, 1, "one")))})
		w.take()
		w.pass(time.Second)
		w.onPush(func(_ context.Context, i Instance, kind documentKind) (adapterapi.AccessState, error) {
			time.Sleep(time.Second)
			inEffect.Store(stateOf(i.document(kind)))
			return *stateOf(i.document(kind)), nil
		})
		w.Watch(alpha, []Instance{pod("a", with(kind, documentOf(t, kind, 2, "two")))})
		synctest.Wait()
		w.Watch(alpha, []Instance{pod("a", with(kind, documentOf(t, kind, 3, "three")))})
		w.pass(1500 * time.Millisecond)
		if got, s := kinds(w.take()), sends(kind); got != s+"@1 c@2 "+s+"@2 " {
			t.Errorf("got %s", got)
		}
		w.pass(time.Second)
		if got := inEffect.Load().Generation; got != 3 {
			t.Errorf("generation %d is in effect", got)
		}
	})
}

// One that does not take a document in time has had its time: others come first, and then
// it is asked.
func TestDocumentsThatAreNotAnswered(t *testing.T) {
	eachKind(t, Options{Workers: 1}, func(t *testing.T, w *world, kind documentKind) {
		var inEffect atomic.Pointer[adapterapi.AccessState]
		inEffect.Store(&adapterapi.AccessState{Version: 1})
		w.adapterWith(kind, &inEffect)
		w.onPush(func(ctx context.Context, _ Instance, kind documentKind) (adapterapi.AccessState, error) {
			<-ctx.Done()
			return adapterapi.AccessState{}, lostPush(ctx, kind, ctx.Err())
		})
		w.Watch(alpha, []Instance{pod("a", with(kind, documentOf(t, kind, 1, "one")))})
		w.pass(time.Second)
		w.Watch(serverName("beta"), []Instance{pod("b")})
		w.pass(4200 * time.Millisecond)
		var order strings.Builder
		for _, q := range w.take() {
			order.WriteString(string(q.uid) + ":" + kinds([]asked{q}))
		}
		if got := order.String(); got != "a:v@0 a:c@0 a:"+sends(kind)+"@0 b:v@5 b:c@5 a:c@5 " {
			t.Errorf("got %s", got)
		}
		w.wantOutcome("a", Verified, "")
	})
}

// A real adapter has changed documents in effect, and answers clients by them.
func TestRealAdapterIsSentDocuments(t *testing.T) {
	t.Parallel()
	p := newPods(t)
	catalog := catalogOf(t, allCapabilities, nil)
	held, err := keys.New(adapterapi.Keyring{Current: key}, podUID)
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan int64, 8)
	live := settings.New(settings.Options{Changed: func(v *settings.Values) { taken <- v.Generation }})
	gate := access.New(access.Options{Ring: func() adapterapi.Keyring { return adapterapi.Keyring{Current: key} }, Required: true})
	adapter := admin.Handler(admin.Options{
		State: func() (keeper.State, <-chan struct{}) { return keeper.State{Ready: true, Catalog: catalog}, nil }, Sessions: func() adapterapi.Sessions { return adapterapi.Sessions{} }, Processes: func() adapterapi.Processes { return adapterapi.Processes{} },
		Keys: held, Settings: live, Access: gate, Metrics: http.NotFoundHandler(),
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
	if gate.Ready() == nil {
		t.Error("the adapter serves clients without an access document")
	}
	for generation := range int64(2) {
		instance.Access = accessOf(t, generation+1, "tool")
		prober.Watch(serverName("real"), []Instance{instance})
		eventually(t, prober, "real", "enforced", func(r Result) bool { return r.Access != nil && r.Access.Digest == instance.Access.Digest })
		if got := gate.State(); got.Generation != generation+1 || gate.Ready() != nil {
			t.Errorf("the adapter goes by %+v: %v", got, gate.Ready())
		}
	}
}

// The manager does not believe a process that answers in the adapter's place.
func TestPushAnswers(t *testing.T) {
	for _, kind := range []documentKind{accessDocument, settingsDocument} {
		t.Run(documents[kind].name, func(t *testing.T) { testPushAnswers(t, kind) })
	}
}

func testPushAnswers(t *testing.T, kind documentKind) {
	p := newPods(t)
	document := documentOf(t, kind, 7, "seven")
	ring := adapterapi.Keyring{Current: key}
	path := map[documentKind]string{accessDocument: adapterapi.PathAccess, settingsDocument: adapterapi.PathSettings}[kind]
	subject := map[documentKind]adapterapi.Subject{accessDocument: adapterapi.AccessPushSubject(podUID), settingsDocument: adapterapi.SettingsSubject(podUID)}[kind]
	answering := func(status int, body string, sign bool) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			proof, ok := ring.Verify(r.Header.Get(adapterapi.HeaderProof), subject, time.Now())
			content, err := io.ReadAll(r.Body)
			if !ok || err != nil || r.Method != http.MethodPut || r.URL.Path != path || !proof.OpensBody(r.Header.Get(adapterapi.HeaderBody), content) || string(content) != document.Text {
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
		"has a newer one":  {answering(409, `{"version":1,"generation":8,"digest":"d"}`, true), "", 8},
		"not signed":       {answering(200, `{"version":1,"generation":7}`, false), mcpprobe.Unreachable, 0},
		"an older adapter": {http.NotFoundHandler(), mcpprobe.Unreachable, 0},
		"refused":          {answering(422, "verbosity is 9", true), mcpprobe.Protocol, 0},
		"no answer of one": {answering(200, "ok", true), mcpprobe.Protocol, 0},
		"nothing listens":  {nil, mcpprobe.Unreachable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			instance := p.add(name, nil, test.adapter)
			with(kind, document)(&instance)
			state, err := asker.push(t.Context(), instance, kind)
			if (err == nil) != (test.class == "") || err != nil && mcpprobe.ClassOf(err) != test.class || err == nil && state.Generation != test.want {
				t.Errorf("got %+v, %v, want %q and generation %d", state, err, test.class, test.want)
			}
		})
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := asker.push(canceled, p.add("canceled", nil, nil), kind)
	if e, ok := errors.AsType[*mcpprobe.Error](err); !ok || e.Class != mcpprobe.Canceled {
		t.Errorf("got %v", err)
	}
}

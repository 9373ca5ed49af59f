package controller

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/issuer"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/internal/promise"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// answers are what issuers have said, by their names. They note what is asked for.
type answers struct {
	keys      map[string]issuer.Keys
	followed  []issuer.Source
	refreshed []string
}

func (a *answers) Follow(_ types.NamespacedName, sources []issuer.Source) { a.followed = sources }
func (a *answers) Refresh(source issuer.Source)                           { a.refreshed = append(a.refreshed, source.Name) }
func (a *answers) Get(source issuer.Source) (issuer.Keys, bool) {
	keys, ok := a.keys[source.Name]
	return keys, ok
}

func jwk(id string) []json.RawMessage {
	return []json.RawMessage{json.RawMessage(`{"kid":"` + id + `"}`)}
}

// accessWorld has one server with auth, and what the API server has of its ConfigMap.
type accessWorld struct {
	t         *testing.T
	r         *Reconciler
	server    *mcpv1alpha1.MCPServer
	keys      *serverKeys
	answers   *answers
	memory    *memory
	configMap *corev1.ConfigMap // nil if there is none
	reads     int
	now       time.Time
	results   map[types.UID]prober.Result
	stop      func() // of the store of keys, if one runs
	old       string // a document from before
}

func newAccessWorld(t *testing.T) *accessWorld {
	w := &accessWorld{
		t: t, keys: &serverKeys{ring: adapterapi.Keyring{Current: adapterapi.NewKey()}}, memory: &memory{}, now: time.UnixMilli(1_800_000_000_000),
		answers: &answers{keys: map[string]issuer.Keys{}},
		server: &mcpv1alpha1.MCPServer{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "echo", UID: "u"},
			Spec: mcpv1alpha1.MCPServerSpec{
				Auth: &mcpv1alpha1.Auth{Kubernetes: &mcpv1alpha1.KubernetesAuth{}, Issuers: []mcpv1alpha1.Issuer{{Name: "corp", URL: "https://corp.example"}}},
				Access: &mcpv1alpha1.Access{Rules: []mcpv1alpha1.AccessRule{{
					Subjects: []mcpv1alpha1.Subject{{Kind: mcpv1alpha1.SubjectKindGroup, Name: "corp:sre"}}, Tools: []mcpv1alpha1.NamePattern{"*"},
				}}},
			},
		},
	}
	w.r = New(Options{Issuers: w.answers, Live: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			w.reads++
			w.configMap.DeepCopyInto(object.(*corev1.ConfigMap))
			return nil
		},
	}).Build()})
	return w
}

// plan plans once, and the ConfigMap becomes what was planned, and the status names it.
func (w *accessWorld) plan() (*state, adapterapi.Access) {
	w.t.Helper()
	s := newState(w.server, w.now)
	s.keys, s.memory, s.results = w.keys, w.memory, w.results
	if w.configMap != nil {
		s.live[workload.ObjectSettings] = &metav1.PartialObjectMetadata{ObjectMeta: w.configMap.ObjectMeta}
	}
	if err := w.r.planAccess(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
	if err := w.r.checkIssuers(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
	access, err := w.keys.ring.OpenAccess([]byte(s.access.Text))
	if err != nil {
		w.t.Fatalf("no adapter takes this: %v", err)
	}
	w.configMap = &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.server, mcpv1alpha1.SchemeGroupVersion.WithKind("MCPServer"))}},
		Data:       map[string]string{adapterapi.AccessFile: s.access.Text},
	}
	w.server.Status.Access = &mcpv1alpha1.AccessStatus{Digest: s.access.Digest}
	return s, access
}

// restart forgets what a manager knows.
func (w *accessWorld) restart() {
	w.memory, w.answers.keys, w.reads = &memory{}, map[string]issuer.Keys{}, 0
	w.now = w.now.Add(time.Hour)
}

func (w *accessWorld) answer(name, iss, kid string) {
	w.answers.keys[name] = issuer.Keys{Issuer: iss, Keys: jwk(kid)}
}

// The manager writes a document again only if its content changes. Another manager or another time
// does not count as a change.
func TestAccessIsWrittenOnce(t *testing.T) {
	w := newAccessWorld(t)
	w.answer("kubernetes", "https://cluster.example", "one")
	w.answer("corp", "https://corp.example", "two")
	first, access := w.plan()
	if access.Generation != w.now.UnixMilli() || w.reads != 0 {
		t.Errorf("a new server: generation %d after %d reads", access.Generation, w.reads)
	}
	w.now = w.now.Add(time.Minute)
	if again, _ := w.plan(); again.access != first.access || w.reads != 0 {
		t.Errorf("at rest: %d reads, (-first +again)\n%s", w.reads, cmp.Diff(first.access.Text, again.access.Text))
	}

	// Another manager writes the same, also before it has asked an issuer.
	w.restart()
	for range 2 {
		if again, _ := w.plan(); again.access != first.access || w.reads != 1 || again.waiting != nil || again.refusal != nil {
			t.Errorf("after a restart: %d reads, %+v, %+v (-first +again)\n%s", w.reads, again.waiting, again.refusal, cmp.Diff(first.access.Text, again.access.Text))
		}
	}

	// Another key, or another rule, is another document.
	w.answer("corp", "https://corp.example", "three")
	changed, access := w.plan()
	if changed.access.Digest == first.access.Digest || access.Generation != w.now.UnixMilli() || string(access.Issuers[1].Keys[0]) == string(jwk("two")[0]) {
		t.Errorf("another key: %+v", access)
	}
	w.now = w.now.Add(-time.Hour) // a clock that is behind does not turn back
	w.server.Spec.Audit = &mcpv1alpha1.Audit{Level: mcpv1alpha1.AuditLevelMetadata}
	if _, later := w.plan(); later.Generation != access.Generation+1 || later.Audit.Level != adapterapi.AuditMetadata {
		t.Errorf("generation %d after %d", later.Generation, access.Generation)
	}

	// So is one with another signature.
	before, _ := w.plan()
	w.keys = &serverKeys{ring: adapterapi.Keyring{Current: adapterapi.NewKey(), Accepted: []adapterapi.Key{w.keys.ring.Current}}}
	if signed, _ := w.plan(); signed.access.Digest == before.access.Digest || signed.access.Generation <= before.access.Generation {
		t.Errorf("with another key: %+v", signed.access)
	}
}

// The manager ignores a document of another writer, whatever its generation.
func TestAccessOfAnotherWriter(t *testing.T) {
	for name, text := range map[string]func(*testing.T, adapterapi.Access) string{
		"missing": func(*testing.T, adapterapi.Access) string { return "" },
		"another key's": func(t *testing.T, access adapterapi.Access) string {
			access.Generation = 1 << 60
			document, err := access.Sign(adapterapi.NewKey())
			if err != nil {
				t.Fatal(err)
			}
			return document.Text
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAccessWorld(t)
			w.answer("kubernetes", "https://cluster.example", "one")
			_, access := w.plan()
			w.configMap.Data[adapterapi.AccessFile] = text(t, access)
			w.memory = &memory{}
			w.now = w.now.Add(time.Hour)
			if _, again := w.plan(); again.Generation != w.now.UnixMilli() {
				t.Errorf("generation %d, want %d", again.Generation, w.now.UnixMilli())
			}
		})
	}
}

// People who may edit the ConfigMap and not the MCPServer can put an older document back, just before a manager
// starts. Its signature is right, and its keys may be withdrawn: none of them counts again.
func TestAccessThatWasPutBack(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*accessWorld)
		want   string // the key that counts until the issuers have answered
	}{
		"the last one":  {func(*accessWorld) {}, "new"},
		"an older one":  {func(w *accessWorld) { w.configMap.Data[adapterapi.AccessFile] = w.old }, ""},
		"not in status": {func(w *accessWorld) { w.server.Status.Access = nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAccessWorld(t)
			w.server.Spec.Auth.Issuers = nil
			w.answer("kubernetes", "https://cluster.example", "withdrawn")
			w.plan()
			w.old = w.configMap.Data[adapterapi.AccessFile]
			w.now = w.now.Add(time.Minute)
			w.answer("kubernetes", "https://cluster.example", "new")
			_, last := w.plan()
			test.change(w)
			w.restart()
			s, access := w.plan()
			got := ""
			if keys := access.Issuers[0].Keys; len(keys) > 0 {
				got = strings.TrimSpace(string(keys[0]))
			}
			if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
				t.Errorf("the key is %q, want %q", got, test.want)
			}
			if access.Generation < last.Generation || (s.waiting == nil) != (test.want != "") {
				t.Errorf("generation %d after %d, and the manager waits for %+v", access.Generation, last.Generation, s.waiting)
			}

			w.answer("kubernetes", "https://cluster.example", "newest")
			if _, access := w.plan(); len(access.Issuers[0].Keys) != 1 || !strings.Contains(string(access.Issuers[0].Keys[0]), "newest") {
				t.Errorf("after the answer: %s", access.Issuers[0].Keys)
			}
		})
	}
}

// An adapter may know of a newer document than the manager does.
func TestAccessFollowsAdapters(t *testing.T) {
	w := newAccessWorld(t)
	w.answer("kubernetes", "https://cluster.example", "one")
	first, access := w.plan()
	reports := func(generation int64, digest string) {
		w.results = map[types.UID]prober.Result{"a": {Access: &prober.Access{Version: 1, Generation: generation, Digest: digest}}}
	}
	reports(access.Generation, first.access.Digest)
	if same, _ := w.plan(); same.access != first.access {
		t.Errorf("an adapter with the same: %+v", same.access)
	}
	reports(access.Generation-1, "older")
	if same, _ := w.plan(); same.access != first.access {
		t.Errorf("an adapter with an older one: %+v", same.access)
	}
	reports(access.Generation+1000, "newer")
	if _, next := w.plan(); next.Generation != access.Generation+1001 {
		t.Errorf("an adapter with a newer one: %d after %d", next.Generation, access.Generation)
	}
	reports(1<<62, "newest")
	if _, next := w.plan(); next.Generation != access.Generation+1001 {
		t.Errorf("an adapter that lies: %d", next.Generation)
	}
}

// What is known of issuers decides about the verdict on the spec, and about the keys.
func TestIssuers(t *testing.T) {
	had := func(w *accessWorld) { // keys that the last manager got
		w.answer("kubernetes", "https://cluster.example", "old")
		w.answer("corp", "https://corp.example", "old")
		w.plan()
		w.restart()
	}
	for name, test := range map[string]struct {
		prepare          func(*accessWorld)
		refusal, waiting string
		keys             map[string]int
	}{
		"none was asked": {func(*accessWorld) {}, "", "kubernetes, corp", map[string]int{"kubernetes": 0, "corp": 0}},
		"all have answered": {func(w *accessWorld) {
			w.answer("kubernetes", "https://cluster.example", "one")
			w.answer("corp", "https://corp.example", "two")
		}, "", "", map[string]int{"kubernetes": 1, "corp": 1}},
		"one was never reached": {func(w *accessWorld) {
			w.answer("kubernetes", "https://cluster.example", "one")
			w.answers.keys["corp"] = issuer.Keys{Err: "connection refused"}
		}, "issuer corp: connection refused", "", map[string]int{"kubernetes": 1, "corp": 0}},
		"none was asked again": {had, "", "", map[string]int{"kubernetes": 1, "corp": 1}},
		"one cannot be reached any more": {func(w *accessWorld) {
			had(w)
			w.answers.keys["corp"] = issuer.Keys{Err: "connection refused"}
		}, "", "", map[string]int{"kubernetes": 1, "corp": 1}},
		"one is not allowed any more": {func(w *accessWorld) {
			had(w)
			w.answers.keys["corp"] = issuer.Keys{Err: "not allowed", Forbidden: true}
		}, "issuer corp: not allowed", "", map[string]int{"kubernetes": 1, "corp": 0}},
		"one has withdrawn its keys": {func(w *accessWorld) {
			had(w)
			w.answers.keys["corp"] = issuer.Keys{Issuer: "https://corp.example", Err: "it publishes no key", Withdrawn: true}
		}, "issuer corp: it publishes no key", "", map[string]int{"kubernetes": 1, "corp": 0}},
		"one is another now": {func(w *accessWorld) {
			had(w)
			w.server.Spec.Auth.Issuers[0].URL = "https://other.example"
		}, "", "corp", map[string]int{"kubernetes": 1, "corp": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAccessWorld(t)
			test.prepare(w)
			s, access := w.plan()
			if (s.refusal != nil) != (test.refusal != "") || s.refusal != nil && (s.refusal.Reason != mcpv1alpha1.ReasonIssuerUnavailable || !strings.Contains(s.refusal.Message, test.refusal)) {
				t.Errorf("refused for %+v, want %q", s.refusal, test.refusal)
			}
			if (s.waiting != nil) != (test.waiting != "") || s.waiting != nil && !strings.Contains(s.waiting.Message, test.waiting) {
				t.Errorf("waits for %+v, want %q", s.waiting, test.waiting)
			}
			got := map[string]int{}
			for _, one := range access.Issuers {
				got[one.Name] = len(one.Keys)
			}
			if diff := cmp.Diff(test.keys, got); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
}

// Tokens cannot tell issuers with the same URL apart. Adapters get a document that they take, with the first.
func TestTwins(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*accessWorld)
		refusal string
		issuers []string
	}{
		"all differ": {func(*accessWorld) {}, "", []string{"kubernetes", "corp"}},
		"of the cluster": {func(w *accessWorld) { w.answer("kubernetes", "https://corp.example", "one") },
			"the url of issuer corp in spec.auth.issuers is that of this cluster's own issuer, https://corp.example,", []string{"kubernetes"}},
		"of the cluster, which does not count": {func(w *accessWorld) {
			w.answer("kubernetes", "https://corp.example", "one")
			w.server.Spec.Auth.Kubernetes = nil
		}, "", []string{"corp"}},
		"of an older CRD": {func(w *accessWorld) {
			w.server.Spec.Auth.Issuers = append(w.server.Spec.Auth.Issuers, mcpv1alpha1.Issuer{Name: "other", URL: "https://corp.example"})
		}, "the issuers corp and other in spec.auth.issuers have the same url, https://corp.example: remove one of them", []string{"kubernetes", "corp"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAccessWorld(t)
			w.answer("kubernetes", "https://cluster.example", "one")
			w.answer("corp", "https://corp.example", "two")
			w.answer("other", "https://corp.example", "two")
			test.prepare(w)
			s, access := w.plan()
			if (s.refusal != nil) != (test.refusal != "") || s.refusal != nil && (s.refusal.Reason != mcpv1alpha1.ReasonInvalidSpec || !strings.Contains(s.refusal.Message, test.refusal)) {
				t.Errorf("refused for %+v, want %q", s.refusal, test.refusal)
			}
			var got []string
			for _, one := range access.Issuers {
				got = append(got, one.Name)
			}
			if diff := cmp.Diff(test.issuers, got); diff != "" || access.Mode != adapterapi.AccessRequired {
				t.Errorf("mode %s, issuers (-want +got):\n%s", access.Mode, diff)
			}
		})
	}
}

// absentAPIServer answers with keys, unless it is away.
type absentAPIServer struct{ away atomic.Bool }

func (a *absentAPIServer) Get(_ context.Context, path string) ([]byte, error) {
	if a.away.Load() {
		return nil, context.DeadlineExceeded
	}
	if strings.HasSuffix(path, "jwks") {
		return json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: signingKey.Public(), KeyID: "one"}}})
	}
	return []byte(`{"issuer":"https://cluster.example"}`), nil
}

var signingKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

// After a day without an issuer users hear that its last keys are still in use: once, and again if the issuer
// came back in between. A manager that was restarted has the keys from the document.
func TestStaleKeysAreToldOnce(t *testing.T) {
	const told = "Warning IssuerTrouble issuer kubernetes: its keys could not be fetched for 24 hours: the last ones are still in use"
	for name, restarted := range map[string]bool{"of this manager": false, "of an earlier manager": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, recorder, apiServer := newAccessWorld(t), events.NewFakeRecorder(10), &absentAPIServer{}
				w.server.Spec.Auth.Issuers = nil
				w.r.Events = recorder
				w.run(apiServer)
				after := func(passed time.Duration, away bool, want ...string) {
					t.Helper()
					apiServer.away.Store(away)
					time.Sleep(passed) // in a bubble
					synctest.Wait()
					for range 2 {
						if _, access := w.plan(); len(access.Issuers[0].Keys) != 1 {
							t.Errorf("the document has %d keys", len(access.Issuers[0].Keys))
						}
					}
					var got []string
					for len(recorder.Events) > 0 {
						got = append(got, <-recorder.Events)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("Events (-want +got):\n%s", diff)
					}
				}
				w.plan() // follows the issuer
				after(time.Second, false)
				if restarted {
					w.restart()
					w.run(apiServer)
					apiServer.away.Store(true)
					w.plan()
				}
				after(promise.StaleKeys-10*time.Minute, true)
				after(20*time.Minute, true, told)
				after(promise.StaleKeys, true)
				after(10*time.Minute, false)
				after(promise.StaleKeys-10*time.Minute, true)
				after(20*time.Minute, true, told)
			})
		})
	}
}

// run has the world's reconciler ask a real store of keys, until the test is over or it runs another.
func (w *accessWorld) run(apiServer issuer.APIServer) {
	if w.stop != nil {
		w.stop()
	}
	store := issuer.New(issuer.Options{Cluster: apiServer})
	ctx, cancel := context.WithCancel(w.t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = store.Run(ctx)
	}()
	w.r.Issuers = store
	w.stop = func() {
		cancel()
		<-over
	}
	w.t.Cleanup(w.stop)
}

// No keys of an issuer that was never reached are in use. The condition says that, and no Event.
func TestNoKeysAreStale(t *testing.T) {
	w, recorder := newAccessWorld(t), events.NewFakeRecorder(10)
	w.r.Events = recorder
	w.answer("kubernetes", "https://cluster.example", "one")
	w.answers.keys["corp"] = issuer.Keys{Err: "does not answer in time", Stale: true}
	if s, _ := w.plan(); s.refusal == nil || s.refusal.Reason != mcpv1alpha1.ReasonIssuerUnavailable || len(recorder.Events) > 0 {
		t.Errorf("refused for %+v, with %d Events", s.refusal, len(recorder.Events))
	}
}

// Servers without auth need no issuer, and those with it have only theirs asked.
func TestSources(t *testing.T) {
	w := newAccessWorld(t)
	w.plan()
	if diff := cmp.Diff([]issuer.Source{{Name: "kubernetes", Cluster: true}, {Name: "corp", URL: "https://corp.example"}}, w.answers.followed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.results = map[types.UID]prober.Result{"a": {Access: &prober.Access{UnknownKeys: "corp other"}}, "b": {Access: &prober.Access{UnknownKeys: "corp"}}, "c": {}}
	if s, _ := w.plan(); len(w.answers.refreshed) != 1 || w.answers.refreshed[0] != "corp" || s.requeueAfter != unknownKeyRecheck {
		t.Errorf("asked again: %v, and then after %s", w.answers.refreshed, s.requeueAfter)
	}
	for name, auth := range map[string]*mcpv1alpha1.Auth{"none": nil, "of the server": {Mode: mcpv1alpha1.AuthModeServer}} {
		w.server.Spec.Auth, w.server.Spec.Access = auth, nil
		if s, _ := w.plan(); len(w.answers.followed) > 0 || s.waiting != nil || s.refusal != nil {
			t.Errorf("%s: %v, %+v, %+v", name, w.answers.followed, s.waiting, s.refusal)
		}
	}
}

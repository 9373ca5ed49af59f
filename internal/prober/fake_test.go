package prober

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/workload"
)

func serverName(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

var alpha = serverName("alpha")

// pod is an instance as tests want most of them.
func pod(uid string, change ...func(*Instance)) Instance {
	i := Instance{
		Pod: serverName(uid), UID: types.UID(uid), IP: "10.0.0.1", Ready: true, Key: key,
		Interval: 10 * time.Second, Timeout: 5 * time.Second,
	}
	for _, c := range change {
		c(&i)
	}
	return i
}

func notReady(i *Instance) { i.Ready = false }

// asked is one question, and when it came.
type asked struct {
	at   time.Duration // since the world began
	uid  types.UID
	kind string
	tag  string
}

// world has a Prober whose questions are answered by functions.
type world struct {
	*Prober
	t     *testing.T
	begin time.Time

	mu      sync.Mutex
	asked   []asked
	told    []time.Duration
	verifyF func(ctx context.Context, i Instance) error
	fetchF  func(ctx context.Context, i Instance, tag string) (reply, error)
	pushF   func(ctx context.Context, i Instance, kind documentKind) (adapterapi.AccessState, error)
}

// inWorld runs a test in which time passes only when all goroutines wait.
func inWorld(t *testing.T, options Options, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, begin: time.Now()}
		w.verifyF = func(context.Context, Instance) error { return nil }
		w.fetchF = func(context.Context, Instance, string) (reply, error) { return good("1", 0), nil }
		options.Notify = func(types.NamespacedName) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, time.Since(w.begin))
		}
		if options.Log.GetSink() == nil {
			options.Log = testr.NewWithOptions(t, testr.Options{Verbosity: 1})
		}
		w.Prober = New(options)
		w.verify = func(ctx context.Context, i Instance) error {
			w.note(i.UID, kindVerify, "")
			return w.verifyFunc()(ctx, i)
		}
		w.fetch = func(ctx context.Context, i Instance, q question) (reply, error) {
			w.note(i.UID, kindCatalog, q.tag)
			r, err := w.fetchFunc()(ctx, i, q.tag)
			if r.etag == q.tag && q.tag != "" {
				r.unchanged = true
			}
			if r.skimmed = q.skim; q.skim && r.catalog != nil {
				r.catalog = &Catalog{Summary: Summary{Catalog: mcpv1alpha1.Catalog{Digest: r.catalog.Summary.Catalog.Digest}}}
			}
			return r, err
		}
		w.push = func(ctx context.Context, i Instance, kind documentKind) (adapterapi.AccessState, error) {
			w.note(i.UID, documents[kind].name, "")
			w.mu.Lock()
			push := w.pushF
			w.mu.Unlock()
			return push(ctx, i, kind)
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- w.Start(ctx) }()
		test(t, w)
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

func (w *world) verifyFunc() func(context.Context, Instance) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.verifyF
}

func (w *world) fetchFunc() func(context.Context, Instance, string) (reply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fetchF
}

func (w *world) onVerify(f func(ctx context.Context, i Instance) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verifyF = f
}

func (w *world) onFetch(f func(ctx context.Context, i Instance, tag string) (reply, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fetchF = f
}

func (w *world) replyWith(r reply) {
	w.onFetch(func(context.Context, Instance, string) (reply, error) { return r, nil })
}

func (w *world) note(uid types.UID, kind, tag string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, asked{time.Since(w.begin), uid, kind, tag})
}

// take returns what was asked since the last time.
func (w *world) take() []asked {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.asked
	w.asked = nil
	return taken
}

func (w *world) takeTold() int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	count := len(w.told)
	w.told = nil
	return count
}

func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) result(uid types.UID) Result { return w.Results(alpha)[uid] }

func (w *world) wantOutcome(uid types.UID, want Outcome, message string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.result(uid); got.Outcome != want || got.Message != message {
		w.t.Errorf("got %s %q, want %s %q", got.Outcome, got.Message, want, message)
	}
}

// good is the answer of an adapter whose server works.
func good(digest string, sessions int32) reply {
	return reply{
		etag: `"` + digest + `"`, sessions: &adapterapi.Sessions{Open: int64(sessions), Limit: 20}, report: Report{Ready: true},
		catalog: &Catalog{Summary: Summary{Catalog: mcpv1alpha1.Catalog{Digest: digest}}, Stored: &workload.Catalog{Digest: digest, JSON: []byte("{}")}},
	}
}

func bad(reason, words string) reply {
	return reply{etag: `"` + words + `"`, report: Report{Reason: reason, Error: words}}
}

func class(c mcpprobe.Class) error { return &mcpprobe.Error{Class: c, Op: "connect", Status: 599} }

// kinds are the kinds of questions, with the whole seconds when they came.
func kinds(questions []asked) string {
	var text strings.Builder
	for _, q := range questions {
		fmt.Fprintf(&text, "%s@%.0f ", q.kind[:1], q.at.Seconds())
	}
	return text.String()
}

var discard = logr.Discard()

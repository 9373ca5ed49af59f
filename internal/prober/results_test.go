package prober

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

func TestSessionsAreToldOnceAMinute(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		sessions := int32(0)
		w.onFetch(func(_ context.Context, _ Instance, tag string) (reply, error) {
			sessions++
			r := good("1", sessions)
			r.unchanged = tag != ""
			return r, nil
		})
		w.Watch(alpha, []Instance{pod("a", func(i *Instance) { i.Interval = time.Second })})
		if told := w.takeTold(); told != 1 {
			t.Errorf("was told %d times at first", told)
		}
		w.pass(10 * time.Minute)
		if told := w.takeTold(); told < 9 || told > 11 {
			t.Errorf("was told %d times in 10 minutes", told)
		}
		if got := w.result("a").Sessions.Open; got < 500 {
			t.Errorf("got %d sessions: they are not held back", got)
		}
		// The prober reports the last change, too, and nothing after it.
		w.replyWith(good("1", 7))
		w.pass(2 * time.Minute)
		if told := w.takeTold(); told == 0 {
			t.Error("the last change was not told")
		}
		w.pass(10 * time.Minute)
		if told := w.takeTold(); told != 0 {
			t.Errorf("was told %d times of nothing", told)
		}
		w.replyWith(reply{unchanged: true})
		w.pass(10 * time.Second)
		if got := w.result("a").Sessions.Open; got != 7 {
			t.Errorf("got %d sessions from an adapter that does not say", got)
		}
	})
}

// A client that is refused is news, though the number of sessions is the same.
func TestRefusalsAreTold(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		reply := good("1", 20)
		w.replyWith(reply)
		w.Watch(alpha, []Instance{pod("a", func(i *Instance) { i.Interval = time.Second })})
		w.pass(2 * time.Minute)
		w.takeTold()
		refused := *reply.sessions
		refused.Refused = 1
		reply.sessions = &refused
		w.replyWith(reply)
		w.pass(2 * time.Second)
		if told, got := w.takeTold(), w.result("a").Sessions.Refused; told != 1 || got != 1 {
			t.Errorf("was told %d times of %d refusals", told, got)
		}
	})
}

// The prober reports changes within the minute at its end, even without a request then.
func TestSessionsAreToldAtTheEndOfTheMinute(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		sessions := int32(0)
		w.onFetch(func(context.Context, Instance, string) (reply, error) {
			sessions++
			return good("1", sessions), nil
		})
		refresh := func(value string) {
			w.Watch(alpha, []Instance{pod("a", func(i *Instance) { i.Interval, i.Refresh = time.Hour, value })})
			w.pass(2 * time.Second)
		}
		refresh("")
		w.takeTold()
		refresh("1")
		if told := w.takeTold(); told != 1 {
			t.Errorf("was told %d times", told)
		}
		refresh("2")
		w.pass(50 * time.Second)
		if told := w.takeTold(); told != 0 {
			t.Errorf("was told %d times within the minute", told)
		}
		w.pass(10 * time.Second)
		if told := w.takeTold(); told != 1 {
			t.Errorf("was told %d times at the end of the minute", told)
		}
	})
}

// Words that differ every time, such as those of a server that prints the time when
// it ends, are no reason to write a status every time.
func TestWordsAreToldOnceAMinute(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		n := 0
		w.onFetch(func(context.Context, Instance, string) (reply, error) {
			n++
			return bad("Exited", fmt.Sprint("exit status 1 at ", n)), nil
		})
		w.Watch(alpha, []Instance{pod("a", notReady, func(i *Instance) { i.Interval = time.Second })})
		w.pass(10 * time.Minute)
		if told := w.takeTold(); told < 9 || told > 12 {
			t.Errorf("was told %d times in 10 minutes", told)
		}
		w.replyWith(bad("Silent", "no answer"))
		w.pass(2 * time.Second)
		if told := w.takeTold(); told != 1 {
			t.Errorf("was told %d times of another reason", told)
		}
	})
}

func TestAChangedCatalogIsTold(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.Watch(alpha, []Instance{pod("a")})
		w.takeTold()
		w.replyWith(good("2", 0))
		w.pass(12 * time.Second)
		if told := w.takeTold(); told != 1 || w.result("a").Catalog.Summary.Catalog.Digest != "2" {
			t.Errorf("was told %d times, got %+v", told, w.result("a").Catalog)
		}
	})
}

func TestFlapping(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		n := 0
		w.onFetch(func(context.Context, Instance, string) (reply, error) {
			n++
			return good(strconv.Itoa(n), 0), nil
		})
		w.Watch(alpha, []Instance{pod("a")})
		w.pass(55 * time.Second)
		if w.result("a").Flapping {
			t.Error("five changes are taken for too many")
		}
		w.pass(25 * time.Second)
		flapping := w.result("a")
		if !flapping.Flapping || flapping.Catalog.Summary.Catalog.Digest != "6" {
			t.Errorf("got %v and %s, want it to flap and to keep the sixth", flapping.Flapping, flapping.Catalog.Summary.Catalog.Digest)
		}
		w.takeTold()
		taken := map[string]bool{}
		for range 20 * 60 {
			w.pass(time.Second)
			taken[w.result("a").Catalog.Summary.Catalog.Digest] = true
		}
		if len(taken) < 4 || len(taken) > 6 {
			t.Errorf("in 20 minutes %d catalogs were taken, want one in 5 minutes", len(taken))
		}
		if told := w.takeTold(); told > 6 {
			t.Errorf("was told %d times in 20 minutes", told)
		}
		for last := w.result("a").Catalog; last == w.result("a").Catalog; {
			w.pass(time.Second) // one was just taken, so the next is not
		}
		// It settles: an adapter with a tag says that nothing has changed, and yet the
		// catalog that was not taken is.
		w.onFetch(func(_ context.Context, _ Instance, tag string) (reply, error) {
			r := good("last", 0)
			r.unchanged = tag == r.etag
			return r, nil
		})
		w.pass(6 * time.Minute)
		if got := w.result("a"); got.Flapping || got.Catalog.Summary.Catalog.Digest != "last" {
			t.Errorf("got %v and %s, want peace and the last", got.Flapping, got.Catalog.Summary.Catalog.Digest)
		}
		w.take()
		w.pass(time.Minute)
		for _, q := range w.take() {
			if q.tag == "" {
				t.Error("the whole catalog is still asked for")
			}
		}
	})
}

func stored(digest string) func(*Instance) { return func(i *Instance) { i.Stored = digest } }

func TestWhatTheClusterHasIsNotKept(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.onFetch(func(_ context.Context, _ Instance, tag string) (reply, error) {
			r := good("1", 0)
			r.unchanged = tag == r.etag
			return r, nil
		})
		w.Watch(alpha, []Instance{pod("a"), pod("b")})
		w.take()
		before := w.result("a")
		if before.Catalog.Stored == nil || before.Catalog != w.result("b").Catalog {
			t.Fatal("instances that agree do not share one catalog")
		}
		w.Watch(alpha, []Instance{pod("a", stored("1")), pod("b", stored("1"))})
		after := w.result("a")
		if after.Catalog.Stored != nil || before.Catalog.Stored == nil {
			t.Error("what is stored is kept, or what was handed out was changed")
		}
		if after.Catalog != w.result("b").Catalog {
			t.Error("they do not share one catalog any more")
		}
		w.pass(time.Minute)
		for _, q := range w.take() {
			if q.tag == "" {
				t.Error("the whole catalog is asked for")
			}
		}
		// A user deletes the ConfigMap.
		w.takeTold()
		w.Watch(alpha, []Instance{pod("a"), pod("b")})
		w.pass(2 * time.Second)
		if got := w.result("a").Catalog; got.Stored == nil || got != w.result("b").Catalog {
			t.Error("what the cluster has lost did not come back")
		}
		if w.takeTold() == 0 {
			t.Error("no notification that it is there again")
		}
	})
}

func TestCatalogsThatTheClusterDoesNotHaveAreFew(t *testing.T) {
	inWorld(t, Options{Log: discard}, func(t *testing.T, w *world) {
		w.onFetch(func(_ context.Context, i Instance, _ string) (reply, error) { return good(string(i.UID), 0), nil })
		var instances []Instance
		for n := range 20 {
			instances = append(instances, pod(fmt.Sprint("p", n)))
		}
		w.Watch(alpha, instances)
		w.pass(30 * time.Second)
		kept := 0
		for uid, result := range w.Results(alpha) {
			if result.Catalog == nil || result.Catalog.Summary.Catalog.Digest != string(uid) {
				t.Errorf("got %+v of %s", result.Catalog, uid)
			} else if result.Catalog.Stored != nil {
				kept++
			}
		}
		if kept != keptUnstored {
			t.Errorf("got %d catalogs that are kept, want %d", kept, keptUnstored)
		}
	})
}

func TestTooLarge(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.replyWith(reply{
			etag: `"t"`, report: Report{Ready: true, Reason: "TooLarge", Error: "more than 10000 items"},
			catalog: &Catalog{Summary: Summary{TooLarge: "more than 10000 items"}},
		})
		w.Watch(alpha, []Instance{pod("a")})
		w.wantOutcome("a", Verified, "")
		if got := w.result("a").Catalog.Summary; got.TooLarge != "more than 10000 items" || got.Catalog.Digest != "" {
			t.Errorf("got %+v", got)
		}
		w.takeTold()
		w.pass(time.Minute)
		if told := w.takeTold(); told != 0 {
			t.Errorf("was told %d times of nothing", told)
		}
	})
}

func TestAnAnswerWithoutASignatureIsTold(t *testing.T) {
	wrong := unsigned(401)
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.onFetch(func(context.Context, Instance, string) (reply, error) { return reply{}, wrong })
		w.Watch(alpha, []Instance{pod("a"), pod("b", notReady)})
		w.pass(time.Second)
		for uid, want := range map[string]Outcome{"a": Verified, "b": Pending} {
			got := w.Results(alpha)[pod(uid).UID]
			if got.Outcome != want || !strings.Contains(got.Message, "answers HTTP 401 without the adapter's signature") {
				t.Errorf("%s: got %s %q", uid, got.Outcome, got.Message)
			}
		}
		w.takeTold()
		w.pass(10 * time.Minute)
		if told := w.takeTold(); told != 0 {
			t.Errorf("was told %d times of the same", told)
		}
		w.replyWith(good("1", 0))
		w.pass(35 * time.Second)
		w.wantOutcome("a", Verified, "")
		w.wantOutcome("b", Pending, "")
	})
}

// An adapter that does not answer any more: the client port has the last word.
func TestACatalogThatCannotBeReadAsksForAVerification(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.Watch(alpha, []Instance{pod("a")})
		w.wantOutcome("a", Verified, "")
		w.onFetch(func(context.Context, Instance, string) (reply, error) {
			return reply{}, failure(mcpprobe.Closed, 0, "gone")
		})
		w.onVerify(func(context.Context, Instance) error { return class(mcpprobe.Unreachable) })
		w.take()
		w.pass(11 * time.Second)         // the third may come after 11.7 s
		w.wantOutcome("a", Verified, "") // one or two failures mean nothing
		w.pass(16 * time.Second)
		if got := w.result("a"); got.Outcome != Unreachable {
			t.Errorf("got %s %q", got.Outcome, got.Message)
		}
		checkTimes(t, w.take(), kindCatalog, 10*time.Second, time.Second, 2*time.Second)
		w.onVerify(func(context.Context, Instance) error { return nil })
		w.pass(35 * time.Second)
		w.wantOutcome("a", Verified, "the catalog cannot be read: gone")
	})
}

func TestPostponed(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.onFetch(func(context.Context, Instance, string) (reply, error) { return reply{}, errNoRoom })
		w.Watch(alpha, []Instance{pod("a")})
		w.pass(40 * time.Second)
		checkTimes(t, w.take(), kindCatalog, 0, time.Second, 2*time.Second, 2*time.Second, 2*time.Second)
		w.wantOutcome("a", Verified, "the catalog cannot be read: too many catalogs are being read at the moment")
		if told := w.takeTold(); told != 2 {
			t.Errorf("was told %d times, want of the outcome and of that", told)
		}
		w.replyWith(good("1", 0))
		w.pass(3 * time.Second)
		w.wantOutcome("a", Verified, "")
	})
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	inWorld(t, Options{Registry: registry}, func(t *testing.T, w *world) {
		w.onFetch(func(_ context.Context, i Instance, _ string) (reply, error) {
			if i.UID == "b" {
				return reply{}, failure(mcpprobe.Busy, 503, "")
			}
			return good("1", 3), nil
		})
		w.Watch(alpha, []Instance{pod("a"), pod("b")})
		w.Watch(serverName("beta"), []Instance{pod("c")})
		w.take()
		recorder := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		got := recorder.Body.String()
		for _, want := range []string{
			`slipway_probe_duration_seconds_count{kind="verify"} 3`,
			`slipway_probe_duration_seconds_count{kind="catalog"} 3`,
			`slipway_probe_failures_total{class="Busy",kind="catalog"} 1`,
			`slipway_probe_instances 3`,
			`slipway_sessions 6`,
		} {
			if !strings.Contains(got, "\n"+want+"\n") {
				t.Errorf("got no %s in\n%s", want, got)
			}
		}
		problems, err := promlint.New(recorder.Body).Lint()
		if err != nil || len(problems) > 0 {
			t.Error(err, problems)
		}
	})
}

// The prober asks an adapter less often that sends its whole report every time.
func TestAnswersWithoutNews(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.onFetch(func(context.Context, Instance, string) (reply, error) {
			r := good("1", 0)
			r.etag = ""
			return r, nil
		})
		w.Watch(alpha, []Instance{pod("a", func(i *Instance) { i.Interval = time.Second })})
		w.pass(3 * time.Minute)
		checkTimes(t, w.take(), kindCatalog, 0, time.Second, 2*time.Second, 4*time.Second, 8*time.Second, 16*time.Second, 30*time.Second, 30*time.Second)
	})
}

// A catalog that changes all the time is not decoded all the time.
func TestSkimming(t *testing.T) {
	catalog := catalogOf(t, allCapabilities, map[string]string{"tools/list": list("tools", 3, func(i int) string { return tool(i, 1, 1, 1) })})
	data := encode(adapterapi.Report{Ready: true, Catalog: encode(catalog)})
	answer := reply{skimmed: true}
	if err := decode(data, mcpprobe.Limits{}, "", &answer); err != nil || answer.catalog.Summary.Catalog.Digest != catalog.Digest || answer.catalog.Stored != nil {
		t.Errorf("got %+v, %v", answer.catalog, err)
	}
	if err := decode([]byte(`{"ready":true,"catalog":[]}`), mcpprobe.Limits{}, "", &answer); err != nil || answer.catalog.Summary.Catalog.Digest != "" {
		t.Errorf("got %+v, %v", answer.catalog, err)
	}
}

package prober

import (
	"context"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// The prober reports the first failed process at once, more of them once a minute, and the end of
// all failures at once.
func TestFailingProcessesAreTold(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		say := func(processes adapterapi.Processes) {
			r := good("1", 0)
			r.processes = processes
			w.replyWith(r)
			w.pass(2 * time.Second)
		}
		want := func(told int, when string) {
			t.Helper()
			if got := w.takeTold(); got != told {
				t.Errorf("was told %d times %s, want %d", got, when, told)
			}
		}
		w.Watch(alpha, []Instance{pod("a", func(i *Instance) { i.Interval = time.Second })})
		w.pass(2 * time.Minute)
		w.takeTold()

		say(adapterapi.Processes{Ended: 5})
		want(0, "that sessions ended")
		first := adapterapi.Processes{Ended: 6, Crashed: 1, OutOfMemory: 1, Cause: "out of memory"}
		say(first)
		want(1, "of the first failure")
		if got := w.result("a").Processes; got != first {
			t.Errorf("got %+v, want %+v", got, first)
		}
		failed := int64(0)
		w.onFetch(func(context.Context, Instance, string) (reply, error) {
			failed++
			r := good("1", 0)
			r.processes = adapterapi.Processes{Ended: failed, Unstartable: failed, Cause: "exit code 3"}
			return r, nil
		})
		w.pass(10 * time.Minute)
		if told := w.takeTold(); told < 9 || told > 11 {
			t.Errorf("was told %d times of failures in 10 minutes", told)
		}
		say(adapterapi.Processes{Ended: 1})
		want(1, "that none fails any more")
		w.pass(10 * time.Minute)
		want(0, "of nothing")
	})
}

// The manager acts on the second failure in a row, and on no later one.
func TestTheSecondFailureIsTold(t *testing.T) {
	inWorld(t, Options{}, func(t *testing.T, w *world) {
		w.Watch(alpha, []Instance{pod("a", notReady, func(i *Instance) { i.Interval = time.Second })})
		for failures, want := range []int{1, 1, 1, 0, 0} {
			r := bad("Exited", "exit code 3")
			r.report.Failures, r.etag = int64(failures), strconv.Itoa(failures)
			w.replyWith(r)
			w.pass(2 * time.Second)
			if told := w.takeTold(); told != want {
				t.Errorf("was told %d times of failure %d, want %d", told, failures, want)
			}
			if got := w.result("a").Report.Failures; got != int64(failures) {
				t.Errorf("got %d failures, want %d", got, failures)
			}
		}
	})
}

func TestFailuresAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		body string
		want int64
	}{
		"none":     {`{"ready":true}`, 0},
		"two":      {`{"failures":2}`, 2},
		"too many": {`{"failures":9223372036854775807}`, maxFailures},
		"negative": {`{"failures":-1}`, 0},
	} {
		var answer reply
		if err := decode([]byte(test.body), mcpprobe.Limits{}, "", &answer); err != nil || answer.report.Failures != test.want {
			t.Errorf("%s: got %d, %v, want %d", name, answer.report.Failures, err, test.want)
		}
	}
	if err := decode([]byte(`{"failures":1e30}`), mcpprobe.Limits{}, "", &reply{}); err == nil {
		t.Errorf("more than %d failures are taken", int64(math.MaxInt64))
	}
}

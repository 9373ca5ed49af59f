//go:build hostile

package hostile

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/bench/load"
	"github.com/slipway-mcp/slipway/bench/procfs"
	"github.com/slipway-mcp/slipway/test/adapter"
	"github.com/slipway-mcp/slipway/test/hang"
)

const (
	wellBehaved = 8
	callRate    = 800 // a second, of all users together
)

// timing is that of one measurement.
var timing = load.Timing{Warm: 200 * time.Millisecond, Measure: 2 * time.Second}

// users are the well-behaved clients, each with a session of its own.
type users struct {
	address, admin string
	sessions       []load.Session
	calls          []int // that each has made
}

// welcome opens the sessions.
func welcome(t *testing.T, process adapter.Process) *users {
	t.Helper()
	at, err := url.Parse(process.URL)
	if err != nil {
		t.Fatal(err)
	}
	u := &users{address: at.Host, admin: process.Admin, calls: make([]int, wellBehaved)}
	for range wellBehaved {
		session, err := load.Open(u.address)
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Limit(10 * hang.Guard); err != nil { // for all rounds
			t.Fatal(err)
		}
		u.sessions = append(u.sessions, session)
	}
	return u
}

// call makes one session's next call. The answer is how many calls its server has had, so
// that a call that is lost, or made twice, or reaches another server, shows.
func (u *users) call(session load.Session, index, _ int) error {
	u.calls[index]++
	number := u.calls[index]
	return session.Do(&load.Call{ID: number, Tool: "count", Text: strconv.AppendInt(nil, int64(number), 10)}, func(message []byte) error {
		return fmt.Errorf("the server says %q besides", message)
	})
}

// measurement is what the users feel.
type measurement struct {
	// p99 is the latency that one call in a hundred exceeds. It counts from when a call is
	// due, so that a stall delays every call that is due meanwhile.
	p99 time.Duration
	// stolen is how many CPUs the hypervisor gave to other machines while a process of this
	// one waited for them.
	stolen float64
}

// measure makes calls for a while. The log says how busy the machine was, all processes
// together: without an attack, the users take a small part of it.
func (u *users) measure(t *testing.T, when string) measurement {
	t.Helper()
	var times []procfs.CPUTimes
	result, err := load.Paced(t.Context(), u.sessions, callRate, timing, u.call, func() error {
		now, err := procfs.ReadCPUTimes()
		times = append(times, now)
		return err
	})
	if err != nil {
		t.Fatalf("a well-behaved session suffers: %v", err)
	}
	used := times[1].Sub(times[0])
	m := measurement{p99: result.Latencies.Quantile(0.99), stolen: float64(used.Stolen) / float64(result.Elapsed)}
	t.Logf("%s: p99 %.2f ms, median %.2f ms, most %.2f ms; the machine used %.2f CPUs, and the hypervisor took %.2f of them", when, millis(m.p99),
		millis(result.Latencies.Quantile(0.5)), millis(result.Latencies.Max()), float64(used.Busy)/float64(result.Elapsed), m.stolen)
	return m
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// leave has each session make one more call and then end.
func (u *users) leave(t *testing.T) {
	t.Helper()
	for i, session := range u.sessions {
		if err := errors.Join(u.call(session, i, 0), session.(*load.Remote).Leave()); err != nil {
			t.Errorf("session %d does not live to its end: %v", i, err)
		}
	}
}

// await waits until nothing of an attack is left: connections are those of the users, and no
// request is in flight.
func (u *users) await(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(hang.Guard)
	for {
		connections, requests := u.metric(t, "slipway_adapter_connections"), u.metric(t, "slipway_adapter_operations_in_flight")
		if connections <= wellBehaved && requests == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("long after the attack, %d connections are open and %d requests are in flight", connections, requests)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// metric is the sum of a metric of the adapter's over its labels.
func (u *users) metric(t *testing.T, name string) (sum int) {
	t.Helper()
	answer, err := http.Get(u.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	found := false
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		text, value, _ := strings.Cut(lines.Text(), " ")
		if text, _, _ = strings.Cut(text, "{"); text != name {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("metric %q", lines.Text())
		}
		found = true
		sum += int(number)
	}
	if !found {
		t.Fatalf("there is no metric %s", name)
	}
	return sum
}

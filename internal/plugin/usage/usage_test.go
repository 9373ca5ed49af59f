package usage

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var begin = time.Unix(1_800_000_000, 0)

// counted is a series of calls whose buckets end at 0.1 s, 1 s and infinity.
func counted(method, failed string, tenth, one, all int) string {
	labels := fmt.Sprintf(`error_type=%q,mcp_method_name=%q,mcp_protocol_version="2025-11-25"`, failed, method)
	return fmt.Sprintf("mcp_server_operation_duration_seconds_bucket{%[1]s,le=\"0.1\"} %[2]d\n"+
		"mcp_server_operation_duration_seconds_bucket{%[1]s,le=\"1\"} %[3]d\n"+
		"mcp_server_operation_duration_seconds_bucket{%[1]s,le=\"+Inf\"} %[4]d\n"+
		"mcp_server_operation_duration_seconds_sum{%[1]s} 1.5\n"+
		"mcp_server_operation_duration_seconds_count{%[1]s} %[4]d\n", labels, tenth, one, all)
}

// withoutBuckets is a series of calls that says only how many there were.
func withoutBuckets(count int) string {
	return fmt.Sprintf("mcp_server_operation_duration_seconds_count{mcp_method_name=\"tools/call\"} %d\n", count)
}

// adapter is a scrape of an adapter with some sessions.
func adapter(sessions string, series ...string) string {
	return "# TYPE slipway_adapter_sessions gauge\nslipway_adapter_sessions " + sessions + "\n" +
		"# TYPE slipway_adapter_budget_used_bytes gauge\nslipway_adapter_budget_used_bytes 2048\n" +
		"# TYPE slipway_adapter_server_memory_bytes gauge\nslipway_adapter_server_memory_bytes 1024\n" +
		"# TYPE mcp_server_operation_duration_seconds histogram\n" + strings.Join(series, "")
}

func TestUsage(t *testing.T) {
	type pod struct{ before, now string } // 2 seconds apart; an empty one is no answer
	for name, test := range map[string]struct {
		pods []pod
		want Usage
	}{
		"no pods": {},
		"calls, some of them failed": {
			[]pod{{
				adapter("3", counted("tools/call", "", 10, 10, 10), counted("tools/call", "tool_error", 1, 1, 1)),
				adapter("4", counted("tools/call", "", 16, 16, 16), counted("tools/call", "tool_error", 1, 3, 3)),
			}},
			Usage{Pods: 1, Answered: 1, CallsPerSecond: new(4.0), ErrorRatio: new(0.25), P99Seconds: new(0.1 + 0.9*(7.92-6)/2), Sessions: new(4.0), BufferedBytes: new(2048.0), MemoryBytes: new(1024.0)},
		},
		"two pods": {
			[]pod{
				{adapter("1", counted("tools/call", "", 0, 0, 0)), adapter("1", counted("tools/call", "", 2, 2, 2))},
				{adapter("2", counted("tools/call", "timeout", 0, 0, 0)), adapter("2", counted("tools/call", "timeout", 0, 0, 2))},
			},
			Usage{Pods: 2, Answered: 2, CallsPerSecond: new(2.0), ErrorRatio: new(0.5), P99Seconds: new(1.0), Sessions: new(3.0), BufferedBytes: new(4096.0), MemoryBytes: new(2048.0)},
		},
		"a series that the first scrape lacks": {
			[]pod{{adapter("1"), adapter("1", counted("prompts/get", "", 4, 4, 4))}},
			Usage{Pods: 1, Answered: 1, CallsPerSecond: new(2.0), ErrorRatio: new(0.0), P99Seconds: new(0.099), Sessions: new(1.0), BufferedBytes: new(2048.0), MemoryBytes: new(1024.0)},
		},
		"an adapter that restarted": {
			[]pod{{adapter("9", counted("tools/call", "", 500, 900, 1000)), adapter("1", counted("tools/call", "", 0, 2, 2))}},
			Usage{Pods: 1, Answered: 1, CallsPerSecond: new(1.0), ErrorRatio: new(0.0), P99Seconds: new(0.991), Sessions: new(1.0), BufferedBytes: new(2048.0), MemoryBytes: new(1024.0)},
		},
		"one that restarted and has counted more since, but not in each bucket": {
			[]pod{{adapter("9", counted("tools/call", "", 5, 5, 5)), adapter("1", counted("tools/call", "", 0, 6, 6))}},
			Usage{Pods: 1, Answered: 1, CallsPerSecond: new(3.0), ErrorRatio: new(0.0), P99Seconds: new(0.991), Sessions: new(1.0), BufferedBytes: new(2048.0), MemoryBytes: new(1024.0)},
		},
		"one that restarted and has no buckets": {
			[]pod{{adapter("9", withoutBuckets(1000)), adapter("1", withoutBuckets(2))}},
			Usage{Pods: 1, Answered: 1, CallsPerSecond: new(1.0), ErrorRatio: new(0.0), Sessions: new(1.0), BufferedBytes: new(2048.0), MemoryBytes: new(1024.0)},
		},
		"no calls": {
			[]pod{{adapter("1", counted("tools/call", "", 5, 5, 5)), adapter("1", counted("tools/call", "", 5, 5, 5))}},
			Usage{Pods: 1, Answered: 1, CallsPerSecond: new(0.0), Sessions: new(1.0), BufferedBytes: new(2048.0), MemoryBytes: new(1024.0)},
		},
		"what is no call": {
			[]pod{{adapter("1"), adapter("1", counted("initialize", "", 5, 5, 5), counted("notifications/initialized", "", 5, 5, 5), counted("subscriptions/listen", "", 0, 0, 5))}},
			Usage{Pods: 1, Answered: 1, CallsPerSecond: new(0.0), Sessions: new(1.0), BufferedBytes: new(2048.0), MemoryBytes: new(1024.0)},
		},
		"a pod that answered once": {
			[]pod{{"", adapter("1", counted("tools/call", "", 5, 5, 5))}},
			Usage{Pods: 1, Answered: 1, Sessions: new(1.0), BufferedBytes: new(2048.0), MemoryBytes: new(1024.0)},
		},
		"a pod that does not answer beside one that does": {
			[]pod{{adapter("1"), adapter("1", counted("tools/call", "", 2, 2, 2))}, {adapter("1"), ""}},
			Usage{Pods: 2, Answered: 1, CallsPerSecond: new(1.0), ErrorRatio: new(0.0), P99Seconds: new(0.099), Sessions: new(1.0), BufferedBytes: new(2048.0), MemoryBytes: new(1024.0)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var total Total
			for _, pod := range test.pods {
				total.Add(parsed(t, pod.before, begin), parsed(t, pod.now, begin.Add(2*time.Second)))
			}
			if diff := cmp.Diff(test.want, total.Usage(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func parsed(t *testing.T, said string, at time.Time) *Scrape {
	t.Helper()
	if said == "" {
		return nil
	}
	scrape, err := Parse(strings.NewReader(said), at)
	if err != nil {
		t.Fatal(err)
	}
	return scrape
}

// Two scrapes of one moment give no rate.
func TestNoTimeBetween(t *testing.T) {
	var total Total
	total.Add(parsed(t, adapter("1"), begin), parsed(t, adapter("1", counted("tools/call", "", 2, 2, 2)), begin))
	if got := total.Usage().CallsPerSecond; got != nil {
		t.Errorf("%v calls/s", *got)
	}
}

// The expected values are those of histogram_quantile.
func TestQuantile(t *testing.T) {
	inf := math.Inf(1)
	for name, test := range map[string]struct {
		buckets map[float64]float64
		want    float64
	}{
		"no buckets":                     {nil, math.NaN()},
		"no observations":                {map[float64]float64{0.1: 0, inf: 0}, math.NaN()},
		"an infinite bucket only":        {map[float64]float64{inf: 5}, math.NaN()},
		"no infinite bucket":             {map[float64]float64{0.1: 1, 1: 2}, math.NaN()},
		"all in the first bucket":        {map[float64]float64{0.1: 100, inf: 100}, 0.099},
		"in the middle":                  {map[float64]float64{0.1: 98, 1: 100, inf: 100}, 0.1 + 0.9/2},
		"beyond the last bound":          {map[float64]float64{0.1: 0, 300: 50, inf: 100}, 300},
		"at the end of a bucket":         {map[float64]float64{0.1: 99, 1: 100, inf: 100}, 0.1},
		"a bucket with fewer than below": {map[float64]float64{0.1: 100, 1: 50, inf: 100}, 0.099},
		"a first bound below zero":       {map[float64]float64{-1: 100, inf: 100}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Quantile(0.99, test.buckets); !cmp.Equal(got, test.want, cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-9)) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// Whatever a pod says, it cannot fill the memory, and numbers that are none are not shown.
func TestHostileScrapes(t *testing.T) {
	for name, said := range map[string]string{
		"nothing":           "",
		"a page":            "<html><body>hello</body></html>",
		"another program":   "up 1\n",
		"no number":         adapter("many"),
		"NaN":               adapter("NaN"),
		"less than nothing": adapter("-1"),
		"too much":          adapter("1") + strings.Repeat("# much\n", MaxBytes/7+1),
		"one long line":     adapter("1") + "a" + strings.Repeat("b", MaxBytes),
	} {
		t.Run(name, func(t *testing.T) {
			if scrape, err := Parse(strings.NewReader(said), begin); err == nil {
				t.Errorf("got %+v", scrape)
			}
		})
	}
}

// What is read ends soon after the limit, whatever there is.
func TestReadsNoMoreThanItMay(t *testing.T) {
	source := &endless{}
	if _, err := Parse(source, begin); err == nil || !strings.Contains(err.Error(), "more than 4 MiB") {
		t.Errorf("error %v", err)
	}
	if source.read > MaxBytes+1 {
		t.Errorf("%d bytes were read", source.read)
	}
}

type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, bytes.Repeat([]byte("# much\n"), len(p)/7+1))
	e.read += n
	return n, nil
}

// The documentation, which the adapter's own tests compare with its metrics, has the metrics that are read here.
func TestMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{metricCalls, metricSessions, metricLimit, metricInFlight, metricProcesses, metricUsed, metricMemory, metricMemoryMax, labelMethod, labelError} {
		if !bytes.Contains(page, []byte("`"+name+"`")) {
			t.Errorf("docs/reference/metrics.md does not have %s", name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(adapter("1", counted("tools/call", "", 1, 2, 3))))
	f.Add([]byte(adapter("1", "mcp_server_operation_duration_seconds_bucket{mcp_method_name=\"tools/call\",le=\"NaN\"} 1e300\n")))
	f.Fuzz(func(t *testing.T, said []byte) {
		now, err := Parse(bytes.NewReader(said), begin.Add(time.Second))
		if err != nil {
			return
		}
		var total Total
		total.Add(&Scrape{at: begin}, now)
		total.Add(now, now)
		for _, value := range []*float64{total.Usage().CallsPerSecond, total.Usage().ErrorRatio, total.Usage().P99Seconds, total.Usage().Sessions} {
			if value != nil && (math.IsNaN(*value) || math.IsInf(*value, 0)) {
				t.Errorf("got %v", *value)
			}
		}
	})
}

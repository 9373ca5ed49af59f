package main

import (
	"context"
	"slices"
	"testing"
)

// The systems that need no npm do a little of everything, so that the benchmark
// works on the day when somebody needs it. What it measures here means nothing.
func TestSystemsWork(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs programs")
	}
	tools, err := prepare(t.Context(), t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	work := map[string]func(context.Context, *cell) (values, error){
		"calls-8": calls(8), "initialize": opening, "request-1m": largeRequest(mebibyte), "progress": progress, "idle": idle(20), "kill": kill,
		"paced": paced, "slow-same": slowReaderSame,
	}
	tried := []string{pipe, netHTTP, naive, adapter, adapterLauncher, sdkBridge}
	for _, s := range systems {
		if !slices.Contains(tried, s.Name) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			for _, w := range workloads {
				run, ok := work[w.Name]
				if !ok || !w.has(s.Name) || w.Name == "slow-same" && s.Name == sdkBridge { // which it does not survive
					continue
				}
				w.run = run
				sample := step{w, s, 0}.run(t.Context(), tools, true, nil)
				if sample.Void != "" {
					t.Errorf("%s: %s", w.Name, sample.Void)
				}
				for _, m := range w.Metrics {
					if _, ok := sample.Values[m.Key]; !ok && s.Name != pipe {
						t.Errorf("%s has no %s", w.Name, m.Key)
					}
				}
				// On the bridge's other stream progress may come late when the machine is busy.
				if lost := sample.Values["lost"]; lost != 0 && s.Name != sdkBridge {
					t.Errorf("%s: %v %% are lost", w.Name, lost)
				}
			}
		})
	}
}

func (w workload) has(system string) bool {
	for _, s := range w.chosen(0) {
		if s.Name == system {
			return true
		}
	}
	return false
}

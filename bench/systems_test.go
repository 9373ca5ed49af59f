package main

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/slipway-mcp/slipway/test/servers"
)

type work map[string]func(context.Context, *cell) (values, error)

// The systems that need no npm do a little of everything, so that the benchmark
// works on the day when it is needed. What it measures here means nothing.
func TestLongSystemsWork(t *testing.T) {
	tools, err := prepare(t.Context(), t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	work{
		"calls-8": calls(8), "initialize": opening, "request-1m": largeRequest(mebibyte), "progress": progress, "idle": idle(20), "kill": kill,
		"paced": paced, "slow-same": slowReaderSame, "reply-1m-one-core": largeReply(mebibyte),
	}.by(t, tools, pipe, netHTTP, naive, adapter, adapterLauncher, sdkBridge)
}

// The adapter and the bound that it is compared with do some of it.
func TestSystemsWork(t *testing.T) {
	tools := &tools{dir: t.TempDir()}
	if err := errors.Join(servers.BuildAll(t.Context(), tools.dir, "bench/bounds/naive", "bench/bounds/relay", "cmd/sidecar", "test/servers/echo"), tools.openToNobody()); err != nil {
		t.Fatal(err)
	}
	work{
		"calls-8": calls(2), "initialize": opening, "progress": progress, "calls-8-one-core": calls(2),
		"forwarded-8": calls(2), "forwarded-reply-1m": largeReply(mebibyte), "forwarded-progress": progress, "idle-forwarded": idle(20),
	}.by(t, tools, naive, adapter, naiveForwarded, adapterForwarded)
}

// by has systems do the work.
func (work work) by(t *testing.T, tools *tools, tried ...string) {
	for _, s := range systems {
		if !slices.Contains(tried, s.Name) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			for _, w := range workloads {
				run, ok := work[w.Name]
				if !ok || !w.has(s.Name) || w.Pinned && runtime.NumCPU() < 2 || w.Name == "slow-same" && s.Name == sdkBridge { // which it does not survive
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

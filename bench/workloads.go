package main

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/bench/load"
	"github.com/slipway-mcp/slipway/bench/report"
)

// workload is what systems have to do, and which of them do it.
type workload struct {
	report.Workload
	run func(context.Context, *cell) (values, error)
	// rounds are how many there are in a full run and in a quick one.
	rounds, quick int
	participants  []participants
	// baseFirst says that L3 comes first in each round, because the others do what it
	// found out.
	baseFirst bool
}

// participants are systems that take part in every so many rounds: those that have goals
// in all, those that say how far to trust them in half, those that are far away in few.
// The run is to take a quarter of an hour.
type participants struct {
	every   int
	systems []string
}

// What the goals are about; and in half of the rounds what shows the noise, and what the
// launcher adds.
var (
	goalSystems = participants{1, []string{naive, adapter}}
	noise       = participants{2, []string{naiveAgain, adapterLauncher}}
)

func also(every int, systems ...string) participants { return participants{every, systems} }

func metrics(m ...report.Metric) []report.Metric { return m }

var (
	rate     = report.Metric{Key: "rate", Title: "calls/s", More: true, Ratio: true}
	p50      = report.Metric{Key: "p50", Title: "p50 µs"}
	p99      = report.Metric{Key: "p99", Title: "p99 µs", Ratio: true}
	cpu      = report.Metric{Key: "cpu", Title: "CPU, ms/1,000", Ratio: true}
	cpuAll   = report.Metric{Key: "cpuAll", Title: "with servers"}
	rss      = report.Metric{Key: "rss", Title: "RSS MiB"}
	p50Milli = report.Metric{Key: "p50", Title: "p50 ms", Ratio: true}
	cpuMilli = report.Metric{Key: "cpu", Title: "CPU, ms/call", Ratio: true}
	maxMilli = report.Metric{Key: "max", Title: "max ms"}

	small       = metrics(rate, p50, p99, cpu, cpuAll, rss)
	large       = metrics(p50Milli, cpuMilli, maxMilli, rss)
	change      = report.Metric{Key: "change", Title: "p99 with ÷ without"}
	again       = report.Metric{Key: "again", Title: "without ÷ without"}
	slowMetrics = metrics(change, again, report.Metric{Key: "before", Title: "p99 without, µs"}, report.Metric{Key: "p99", Title: "p99 with, µs"},
		report.Metric{Key: "growth", Title: "more RSS, MiB"}, report.Metric{Key: "lost", Title: "lost replies"})
	// The closed loop's rate, then p50, p99 and p99.9 at each of the three rates.
	pacedMetrics = metrics(report.Metric{Key: "max", Title: "most calls/s", More: true},
		report.Metric{Key: "halfP50", Title: "at 50 %: p50 µs"}, report.Metric{Key: "halfP99", Title: "p99"}, report.Metric{Key: "halfP999", Title: "p99.9"},
		report.Metric{Key: "mostP50", Title: "at 80 %: p50 µs"}, report.Metric{Key: "mostP99", Title: "p99"}, report.Metric{Key: "mostP999", Title: "p99.9"},
		report.Metric{Key: "commonRate", Title: "common rate"}, report.Metric{Key: "commonP50", Title: "p50 µs", Ratio: true},
		report.Metric{Key: "commonP99", Title: "p99", Ratio: true}, report.Metric{Key: "commonP999", Title: "p99.9"},
		report.Metric{Key: "commonLate", Title: "generator late, p99"})
	tokenMetrics = metrics(report.Metric{Key: "change", Title: "calls/s with ÷ without", More: true}, report.Metric{Key: "own", Title: "with ÷ same bytes", More: true},
		report.Metric{Key: "bytes", Title: "same bytes ÷ without", More: true}, again, report.Metric{Key: "rate", Title: "calls/s with", More: true})
	forgedMetrics = metrics(report.Metric{Key: "change", Title: "p99 with, less 1 ms, ÷ without"}, again, report.Metric{Key: "before", Title: "p99 without, µs"},
		report.Metric{Key: "p99", Title: "p99 with, µs"}, report.Metric{Key: "refused", Title: "forged tokens/s"})
	progressMetrics = metrics(
		report.Metric{Key: "rate", Title: "events/s", More: true, Ratio: true}, report.Metric{Key: "lost", Title: "lost %"}, cpu, rss)
	idleMetrics = metrics(
		report.Metric{Key: "kib", Title: "KiB a session, bridge alone", Ratio: true},
		report.Metric{Key: "threadsMore", Title: "more threads"},
		report.Metric{Key: "p99", Title: "p99 µs of 8 at work"},
		change, again,
		report.Metric{Key: "childKib", Title: "KiB a session, servers"})
)

const mebibyte = 1 << 20

// workloads are in the order in which each round has them.
var workloads = slices.Concat(directWorkloads, forwardedWorkloads)

var directWorkloads = []workload{
	{
		Workload: report.Workload{Name: "calls-1", Title: "Small calls, 1 session", Metrics: small},
		run:      calls(1), rounds: 12, quick: 1,
		participants: []participants{goalSystems, noise, also(4, pipe, netHTTP, sdkBridge)},
	}, {
		Workload: report.Workload{Name: "calls-8", Title: "Small calls, 8 sessions", Metrics: small},
		run:      calls(8), rounds: 12, quick: 1,
		participants: []participants{goalSystems, also(1, naiveAgain, adapterLauncher), also(5, pipe, netHTTP, adapterShared, adapterNoReplay, sdkBridge)},
	}, {
		Workload: report.Workload{Name: "calls-64", Title: "Small calls, 64 sessions", Metrics: small},
		run:      calls(64), rounds: 12, quick: 1,
		participants: []participants{goalSystems, noise, also(4, netHTTP, adapterShared, sdkBridge)},
	}, oneCore(workload{
		Workload: report.Workload{Name: "calls-1", Title: "Small calls, 1 session", Metrics: small},
		run:      calls(1), rounds: 12,
		participants: []participants{goalSystems, also(2, naiveAgain), also(4, netHTTP)},
	}), oneCore(workload{
		Workload: report.Workload{Name: "calls-8", Title: "Small calls, 8 sessions", Metrics: small},
		run:      calls(8), rounds: 12, quick: 1,
		participants: []participants{goalSystems, also(2, naiveAgain), also(4, netHTTP)},
	}), oneCore(workload{
		Workload: report.Workload{Name: "calls-64", Title: "Small calls, 64 sessions", Metrics: small},
		run:      calls(64), rounds: 12,
		participants: []participants{goalSystems, also(2, naiveAgain), also(4, netHTTP)},
	}), {
		Workload: report.Workload{Name: "calls-256", Title: "Small calls, 256 sessions", Metrics: small},
		run:      calls(256), rounds: 3,
		participants: []participants{goalSystems, also(3, adapterShared, sdkBridge)},
	}, {
		Workload: report.Workload{Name: "paced", Title: "Small calls, 8 sessions, at a fixed rate", Metrics: pacedMetrics},
		run:      paced, rounds: 5, quick: 1, baseFirst: true,
		participants: []participants{goalSystems, noise, also(5, sdkBridge)},
	}, {
		Workload: report.Workload{Name: "calls-warm", Title: "Small calls, peers warmed up for " + strconv.Itoa(int(jitWarm.Seconds())) + " s", Metrics: metrics(
			report.Metric{Key: "rate1", Title: "1 session, calls/s", More: true, Ratio: true},
			report.Metric{Key: "rate8", Title: "8 sessions, calls/s", More: true, Ratio: true},
			report.Metric{Key: "rate64", Title: "64 sessions, calls/s", More: true, Ratio: true})},
		run: warmCalls, rounds: 6, quick: 1,
		participants: []participants{goalSystems, also(2, supergateway, mcpProxy)},
	}, {
		Workload: report.Workload{Name: "initialize", Title: "initialize", Metrics: metrics(
			report.Metric{Key: "p50", Title: "p50 µs", Ratio: true}, report.Metric{Key: "max", Title: "max µs"})},
		run: opening, rounds: 8, quick: 1,
		participants: []participants{goalSystems, also(1, adapterCold), noise, also(2, launcherCold), also(4, pipe, sdkBridge, supergateway, mcpProxy)},
	}, {
		Workload: report.Workload{Name: "reply-1m", Title: "A reply of 1 MiB", Metrics: large},
		run:      largeReply(mebibyte), rounds: 8, quick: 1,
		participants: []participants{goalSystems, noise, also(4, pipe, sdkBridge, supergateway, mcpProxy)},
	}, {
		Workload: report.Workload{Name: "request-1m", Title: "A request of 1 MiB", Metrics: large},
		run:      largeRequest(mebibyte), rounds: 8,
		participants: []participants{goalSystems, noise, also(4, pipe, sdkBridge, mcpProxy), also(8, supergateway)},
	}, oneCore(workload{
		Workload: report.Workload{Name: "reply-1m", Title: "A reply of 1 MiB", Metrics: large},
		run:      largeReply(mebibyte), rounds: 8, quick: 1,
		participants: []participants{goalSystems, also(2, naiveAgain)},
	}), oneCore(workload{
		Workload: report.Workload{Name: "request-1m", Title: "A request of 1 MiB", Metrics: large},
		run:      largeRequest(mebibyte), rounds: 8,
		participants: []participants{goalSystems, also(2, naiveAgain)},
	}), {
		Workload: report.Workload{Name: "reply-8m", Title: "A reply of 8 MiB", Metrics: large},
		run:      largeReply(8 * mebibyte), rounds: 6,
		participants: []participants{goalSystems, also(3, adapterLauncher), also(6, sdkBridge, supergateway, mcpProxy)},
	}, {
		Workload: report.Workload{Name: "request-8m", Title: "A request of 8 MiB", Metrics: large},
		run:      largeRequest(8 * mebibyte), rounds: 6,
		participants: []participants{goalSystems, also(3, adapterLauncher), also(6, sdkBridge, supergateway, mcpProxy)},
	}, {
		Workload: report.Workload{Name: "progress", Title: "1,000 progress events a call", Metrics: progressMetrics},
		run:      progress, rounds: 12, quick: 1,
		participants: []participants{goalSystems, also(1, naiveAgain, adapterLauncher), also(4, pipe, adapterNoReplay, sdkBridge, supergateway, mcpProxy), also(10, mcpProxyStore)},
	}, {
		Workload: report.Workload{Name: "idle", Title: "1,000 idle sessions with an open stream", Metrics: idleMetrics},
		run:      idle(1000), rounds: 3,
		participants: []participants{goalSystems, also(3, adapterShared, supergateway, mcpProxy)},
	}, {
		Workload: report.Workload{Name: "idle-100", Title: "100 idle sessions with an open stream", Metrics: idleMetrics},
		run:      idle(100), quick: 1,
		participants: []participants{goalSystems, also(1, sdkBridge, supergateway, mcpProxy)},
	}, {
		Workload: report.Workload{Name: "kill", Title: "SIGKILL of the server during a call", Metrics: metrics(report.Metric{Key: "p50", Title: "p50 ms"}, maxMilli)},
		run:      kill, rounds: 3,
		participants: []participants{goalSystems, also(1, adapterLauncher, sdkBridge), also(3, supergateway, mcpProxy)},
	}, {
		Workload: report.Workload{Name: "slow-reader", Title: "A client that does not read, beside 8 that do", Metrics: slowMetrics},
		run:      slowReader, rounds: 6,
		participants: []participants{goalSystems, also(6, sdkBridge, supergateway, mcpProxy)},
	}, {
		// L3 has one mutex for each session, and so cannot do two things in one at a time.
		Workload: report.Workload{Name: "slow-same", Title: "A client that does not read one of its calls, and makes others in the same session", Metrics: slowMetrics},
		run:      slowReaderSame, rounds: 5, quick: 1,
		participants: []participants{also(1, adapter), also(5, sdkBridge, supergateway)},
	}, tokens(1), tokens(8), tokens(64), oneCore(tokens(1)), oneCore(tokens(8)), oneCore(tokens(64)), {
		Workload: report.Workload{Name: "bad-tokens", Title: strconv.Itoa(fewForgers) + " clients with forged tokens, beside 8 with good ones", Metrics: forgedMetrics},
		run:      badTokens(fewForgers), rounds: 6, quick: 1,
		participants: []participants{also(1, adapterAuth)},
	}, {
		Workload: report.Workload{Name: "bad-tokens-many", Title: strconv.Itoa(manyForgers) + " clients with forged tokens, beside 8 with good ones", Metrics: forgedMetrics},
		run:      badTokens(manyForgers), rounds: 6, quick: 1,
		participants: []participants{also(1, adapterAuth)},
	}, {
		Workload: report.Workload{Name: "churn", Title: "Sessions that call once", Metrics: metrics(
			report.Metric{Key: "rate", Title: "sessions/s", More: true, Ratio: true}, report.Metric{Key: "p50", Title: "p50 ms"},
			report.Metric{Key: "p99", Title: "p99 ms", Ratio: true}, report.Metric{Key: "cpu", Title: "CPU, µs/session", Ratio: true}, rss)},
		run: churn, rounds: 5,
		participants: []participants{goalSystems, also(2, adapterCold), also(5, adapterLauncher, sdkBridge, supergateway, mcpProxy)},
	},
}

// oneCore is the same work with the bridge and its servers on one CPU and the generator on
// another: the generator takes nothing from them, and no part of the bridge's work is hidden
// on a second core.
func oneCore(w workload) workload {
	w.Name += "-one-core"
	w.Title += ", on one core"
	w.Pinned = true
	return w
}

// jitWarm is how long a peer runs before it is fair to measure it: some 40,000 calls.
const jitWarm = 20 * time.Second

// warmCalls is small calls of 1, 8 and 64 sessions, one after the other in one process,
// so that the peers have to be warmed up only once.
func warmCalls(ctx context.Context, c *cell) (values, error) {
	const most = 64
	sessions, err := c.openAll(ctx, most)
	if err != nil {
		return nil, err
	}
	defer closeAll(sessions)
	timing := load.Timing{Warm: 200 * time.Millisecond, Measure: 700 * time.Millisecond}
	if c.node && !c.quick {
		if _, err := c.small(ctx, sessions[:8], load.Timing{Warm: jitWarm, Measure: timing.Measure}); err != nil {
			return nil, err
		}
	}
	found := values{}
	for _, step := range []struct {
		key string
		n   int
	}{{"rate1", 1}, {"rate8", 8}, {"rate64", most}} {
		one, err := c.small(ctx, sessions[:step.n], timing)
		if err != nil {
			return nil, err
		}
		found[step.key] = one["rate"]
	}
	return found, nil
}

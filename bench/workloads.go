package main

import (
	"context"
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
}

// participants are systems that take part in every so many rounds: those that are
// compared closely in all, those that are far away in few. The run is to take ten
// minutes.
type participants struct {
	every   int
	systems []string
}

// always take part in everything that has a goal.
var always = participants{1, []string{naive, naiveAgain, adapter, adapterLauncher}}

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
	idleMetrics = metrics(
		report.Metric{Key: "kib", Title: "KiB a session, bridge alone", Ratio: true},
		report.Metric{Key: "threadsMore", Title: "more threads"},
		report.Metric{Key: "p99", Title: "p99 µs of 8 at work"},
		report.Metric{Key: "change", Title: "with ÷ without the idle"},
		report.Metric{Key: "childKib", Title: "KiB a session, servers"})
)

const mebibyte = 1 << 20

// workloads are in the order in which each round has them.
var workloads = []workload{
	{
		report.Workload{Name: "calls-1", Title: "Small calls, 1 session", Metrics: small},
		calls(1), 12, 1, []participants{always, also(3, pipe, netHTTP, sdkBridge)},
	}, {
		report.Workload{Name: "calls-8", Title: "Small calls, 8 sessions", Metrics: small},
		calls(8), 12, 1, []participants{always, also(3, pipe, netHTTP, adapterShared, adapterNoReplay, sdkBridge)},
	}, {
		report.Workload{Name: "calls-64", Title: "Small calls, 64 sessions", Metrics: small},
		calls(64), 12, 1, []participants{always, also(3, netHTTP, adapterShared, sdkBridge)},
	}, {
		report.Workload{Name: "calls-256", Title: "Small calls, 256 sessions", Metrics: small},
		calls(256), 6, 0, []participants{also(1, naive, adapter), also(3, adapterShared, sdkBridge)},
	}, {
		report.Workload{Name: "calls-warm", Title: "Small calls, peers warmed up for 20 s", Metrics: metrics(
			report.Metric{Key: "rate1", Title: "1 session, calls/s", More: true, Ratio: true},
			report.Metric{Key: "rate8", Title: "8 sessions, calls/s", More: true, Ratio: true},
			report.Metric{Key: "rate64", Title: "64 sessions, calls/s", More: true, Ratio: true})},
		warmCalls, 2, 1, []participants{also(1, naive, adapter, supergateway, mcpProxy)},
	}, {
		report.Workload{Name: "initialize", Title: "initialize", Metrics: metrics(
			report.Metric{Key: "p50", Title: "p50 µs", Ratio: true}, report.Metric{Key: "max", Title: "max µs"})},
		opening, 12, 1, []participants{always, also(1, adapterCold, launcherCold), also(3, pipe, sdkBridge), also(6, supergateway, mcpProxy)},
	}, {
		report.Workload{Name: "reply-1m", Title: "A reply of 1 MiB", Metrics: large},
		largeReply(mebibyte), 12, 1, []participants{always, also(3, pipe, sdkBridge), also(6, supergateway, mcpProxy)},
	}, {
		report.Workload{Name: "request-1m", Title: "A request of 1 MiB", Metrics: large},
		largeRequest(mebibyte), 12, 0, []participants{always, also(3, pipe, sdkBridge), also(6, supergateway, mcpProxy)},
	}, {
		report.Workload{Name: "reply-8m", Title: "A reply of 8 MiB", Metrics: large},
		largeReply(8 * mebibyte), 12, 0, []participants{also(1, naive, adapter), also(6, adapterLauncher, sdkBridge, supergateway, mcpProxy)},
	}, {
		report.Workload{Name: "request-8m", Title: "A request of 8 MiB", Metrics: large},
		largeRequest(8 * mebibyte), 12, 0, []participants{also(1, naive, adapter), also(6, adapterLauncher, sdkBridge, supergateway, mcpProxy)},
	}, {
		report.Workload{Name: "progress", Title: "1,000 progress events a call", Metrics: metrics(
			report.Metric{Key: "rate", Title: "events/s", More: true, Ratio: true}, report.Metric{Key: "lost", Title: "lost %"}, cpu, rss)},
		progress, 12, 1, []participants{always, also(3, pipe, adapterNoReplay, sdkBridge), also(6, supergateway, mcpProxy, mcpProxyStore)},
	}, {
		report.Workload{Name: "idle", Title: "1,000 idle sessions with an open stream", Metrics: idleMetrics},
		idle(1000), 3, 0, []participants{also(1, naive, adapter), also(3, adapterLauncher, adapterShared, sdkBridge, supergateway, mcpProxy)},
	}, {
		report.Workload{Name: "idle-100", Title: "100 idle sessions with an open stream", Metrics: idleMetrics},
		idle(100), 0, 1, []participants{also(1, naive, adapter, sdkBridge, supergateway, mcpProxy)},
	}, {
		report.Workload{Name: "kill", Title: "SIGKILL of the server during a call", Metrics: metrics(report.Metric{Key: "p50", Title: "p50 ms"}, maxMilli)},
		kill, 3, 0, []participants{also(1, naive, adapter, adapterLauncher, sdkBridge), also(3, supergateway, mcpProxy)},
	}, {
		report.Workload{Name: "slow-reader", Title: "A client that does not read, beside 8 that do", Metrics: metrics(
			report.Metric{Key: "change", Title: "p99 of others, with ÷ without"}, report.Metric{Key: "before", Title: "p99 without, µs"},
			report.Metric{Key: "p99", Title: "p99 with, µs"}, report.Metric{Key: "growth", Title: "more RSS, MiB"})},
		slowReader, 6, 0, []participants{also(1, naive, adapter), also(6, adapterLauncher, sdkBridge, supergateway, mcpProxy)},
	}, {
		report.Workload{Name: "churn", Title: "Sessions that call once", Metrics: metrics(
			report.Metric{Key: "rate", Title: "sessions/s", More: true, Ratio: true}, report.Metric{Key: "p50", Title: "p50 ms"},
			report.Metric{Key: "p99", Title: "p99 ms", Ratio: true}, report.Metric{Key: "cpu", Title: "CPU, µs/session", Ratio: true}, rss)},
		churn, 6, 0, []participants{also(1, naive, adapter, adapterCold), also(3, adapterLauncher, sdkBridge), also(6, supergateway, mcpProxy)},
	},
}

// jitWarm is how long a peer runs before it is fair to measure it.
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

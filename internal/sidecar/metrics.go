package sidecar

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/slipway-mcp/slipway/internal/version"
)

// metricsHandler serves the adapter's metrics. None has a label that a client or a
// server could choose.
func (a *Adapter) metricsHandler() http.Handler {
	registry := prometheus.NewRegistry()
	sessions := &a.metrics
	registerGauges(registry, []gauge{
		{"sessions", "Sessions that are open.", func() float64 { return float64(a.openSessions()) }},
		{"sessions_limit", "Sessions that may be open at a time.", func() float64 { return float64(a.config.MaxSessions) }},
		{"ready", "Whether a fresh server answered when last tried.", a.readyValue},
	})
	registerCounters(registry, []counter{
		{"dropped_notifications_total", "Notifications given up because a client did not read.", sessions.DroppedNotifications.Value},
		{"unmatched_answers_total", "Answers to no request that was in flight.", sessions.UnmatchedAnswers.Value},
		{"call_timeouts_total", "Calls that took longer than they may.", sessions.CallTimeouts.Value},
		{"server_stalls_total", "Times that a server was not read because its client did not.", sessions.Stalls.Value},
	})
	if processes := a.backend.processes; processes != nil {
		registerGauges(registry, []gauge{
			{"server_processes", "Server processes that run, spares and the keeper's among them.", func() float64 { return float64(processes.Running.Load()) }},
		})
		registerCounters(registry, []counter{
			{"server_starts_total", "Server processes that were started.", processes.Starts.Load},
			{"server_start_failures_total", "Server processes that could not be started.", processes.StartFailures.Load},
			{"server_crashes_total", "Server processes that ended without being asked to.", processes.Crashes.Load},
			{"junk_lines_total", "Lines that servers wrote to standard output and that are no messages.", processes.JunkLines.Load},
			{"panics_total", "Sessions that ended because of a mistake of the adapter.", processes.Panics.Load},
		})
	}
	if shared := a.backend.shared; shared != nil {
		registerCounters(registry, []counter{
			{"shared_log_messages_total", "Log messages of the shared process, which are dropped.", shared.LogMessages.Value},
			{"shared_refused_requests_total", "Requests of the shared process, which nobody can answer.", shared.RefusedRequests.Value},
			{"shared_slow_sessions_total", "Sessions that were ended because they did not read.", shared.SlowSessions.Value},
		})
	}
	if proxy := a.backend.proxy; proxy != nil {
		figures := &proxy.Metrics
		registerCounters(registry, []counter{
			{"upstream_refused_total", "Requests beyond a limit.", figures.Refused.Value},
			{"upstream_unavailable_total", "Requests that found no server at its port.", figures.Unavailable.Value},
			{"upstream_broken_total", "Requests that the server failed to answer, or to its end.", figures.Broken.Value},
		})
	}
	build := version.Get()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slipway", Name: "build_info", Help: "The build, as labels.",
		ConstLabels: prometheus.Labels{"version": build.Version, "commit": build.Commit, "go_version": build.GoVersion},
	}, func() float64 { return 1 }))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

type gauge struct {
	name, help string
	value      func() float64
}

func registerGauges(registry *prometheus.Registry, gauges []gauge) {
	for _, g := range gauges {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "slipway", Subsystem: "adapter", Name: g.name, Help: g.help,
		}, g.value))
	}
}

type counter struct {
	name, help string
	value      func() uint64
}

func registerCounters(registry *prometheus.Registry, counters []counter) {
	for _, c := range counters {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "slipway", Subsystem: "adapter", Name: c.name, Help: c.help,
		}, func() float64 { return float64(c.value()) }))
	}
}

func (a *Adapter) readyValue() float64 {
	if state, _ := a.keeper.State(); state.Ready {
		return 1
	}
	return 0
}

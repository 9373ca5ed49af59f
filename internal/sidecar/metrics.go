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
	processes, sessions := a.pool.Metrics(), &a.metrics
	for _, gauge := range []struct {
		name, help string
		value      func() float64
	}{
		{"sessions", "Sessions that are open.", func() float64 { return float64(a.sessions.Len()) }},
		{"sessions_limit", "Sessions that may be open at a time.", func() float64 { return float64(a.config.MaxSessions) }},
		{"server_processes", "Server processes that run, spares and the keeper's among them.", func() float64 { return float64(processes.Running.Load()) }},
		{"ready", "Whether a fresh server process answered when last tried.", a.readyValue},
	} {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "slipway", Subsystem: "adapter", Name: gauge.name, Help: gauge.help,
		}, gauge.value))
	}
	for _, counter := range []struct {
		name, help string
		value      func() uint64
	}{
		{"server_starts_total", "Server processes that were started.", processes.Starts.Load},
		{"server_start_failures_total", "Server processes that could not be started.", processes.StartFailures.Load},
		{"server_crashes_total", "Server processes that ended without being asked to.", processes.Crashes.Load},
		{"junk_lines_total", "Lines that servers wrote to standard output and that are no messages.", processes.JunkLines.Load},
		{"dropped_notifications_total", "Notifications given up because a client did not read.", sessions.DroppedNotifications.Value},
		{"unmatched_answers_total", "Answers to no request that was in flight.", sessions.UnmatchedAnswers.Value},
		{"call_timeouts_total", "Calls that took longer than they may.", sessions.CallTimeouts.Value},
		{"server_stalls_total", "Times that a server was not read because its client did not.", sessions.Stalls.Value},
	} {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "slipway", Subsystem: "adapter", Name: counter.name, Help: counter.help,
		}, func() float64 { return float64(counter.value()) }))
	}
	build := version.Get()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slipway", Name: "build_info", Help: "The build, as labels.",
		ConstLabels: prometheus.Labels{"version": build.Version, "commit": build.Commit, "go_version": build.GoVersion},
	}, func() float64 { return 1 }))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

func (a *Adapter) readyValue() float64 {
	if state, _ := a.keeper.State(); state.Ready {
		return 1
	}
	return 0
}

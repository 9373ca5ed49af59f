package sidecar

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
	"github.com/slipway-mcp/slipway/internal/version"
)

// registerConnections has what became of clients that connect.
func (a *Adapter) registerConnections() {
	registerGauges(a.registry, []gauge{
		{"connections", "Connections of clients that are open.", func() float64 { return float64(a.clients.Connections()) }},
		{"connections_limit", "Connections of clients that may be open at a time.", func() float64 { return float64(a.clients.Limit()) }},
	})
	registerCounters(a.registry, []counter{
		{"refused_connections_total", "Connections of clients beyond what may be open, while none of the others could make room.", a.clients.Refused},
		{"evicted_connections_total", "Connections without a request in flight that made room for others.", a.clients.Evicted},
	})
}

// registerPlaces has what became of clients that found every session slot taken.
func (a *Adapter) registerPlaces() {
	registerCounters(a.registry, []counter{
		{"refused_sessions_total", "Clients that found every session slot taken, and no session that could end for them.", a.sessions.Places.Refused},
	})
	for _, use := range places.Uses() {
		a.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "slipway", Subsystem: "adapter", Name: "evicted_sessions_total",
			Help:        "Idle sessions that ended for others because every session slot was taken, by what their clients had done: opened, listed, worked.",
			ConstLabels: prometheus.Labels{"use": use.String()},
		}, func() float64 { return float64(a.sessions.Places.Evicted(use)) }))
	}
}

// metricsHandler serves the adapter's metrics. None has a label that a client or a
// server could choose.
func (a *Adapter) metricsHandler() http.Handler {
	registry := a.registry
	sessions := &a.metrics
	registerGauges(registry, []gauge{
		{"sessions", "Sessions that are open.", func() float64 { return float64(a.sessions.Len()) }},
		{"sessions_limit", "Sessions that may be open at a time.", func() float64 { return float64(a.config.MaxSessions) }},
		{"budget_bytes", "Bytes of messages that the adapter may hold at a time.", func() float64 { return float64(a.memory.Limit()) }},
		{"budget_used_bytes", "Bytes of messages that the adapter holds, beside what is free for each session.", func() float64 { return float64(a.memory.Used()) }},
		{"ready", "Whether a fresh server answered when last tried.", a.readyValue},
	})
	a.registerPlaces()
	a.registerConnections()
	registerCounters(registry, []counter{
		{"dropped_notifications_total", "Notifications given up because a client did not read.", sessions.DroppedNotifications.Value},
		{"abandoned_answers_total", "Answers given up because the client did not come back for them.", sessions.AbandonedAnswers.Value},
		{"abandoned_streams_total", "Streams of calls given up because there were too many that the client had not come back for.", sessions.AbandonedStreams.Value},
		{"refused_server_requests_total", "Requests of servers beyond what may wait for an answer of the client.", sessions.RefusedRequests.Value},
		{"expired_server_requests_total", "Requests of servers that no client took, or answered, in time.", sessions.ExpiredRequests.Value},
		{"dropped_replies_total", "Answers of the adapter to pings and refused requests of servers that did not read them.", sessions.DroppedReplies.Value},
		{"unmatched_progress_total", "Progress of no call that was in flight.", sessions.UnmatchedProgress.Value},
		{"unmatched_answers_total", "Answers to no request that was in flight.", sessions.UnmatchedAnswers.Value},
		{"call_timeouts_total", "Calls that took longer than they may.", sessions.CallTimeouts.Value},
		{"refused_bodies_total", "Requests that found no room for their body.", a.bodies.Refused},
		{"evicted_bodies_total", "Requests whose body came slowly and made room for others.", a.bodies.Evicted},
		{"budget_waits_total", "Times that a message of a server was not read on because the memory budget had no room for it.", a.memory.Waits},
		{"slow_sessions_total", "Sessions that ended because their clients did not read and others needed the memory.", sessions.SlowClients.Value},
		{"server_stalls_total", "Times that a server was not read because its client did not.", sessions.Stalls.Value},
	})
	if processes := a.backend.processes; processes != nil {
		registerGauges(registry, []gauge{
			{"server_processes", "Server processes that run, spares and the keeper's among them.", func() float64 { return float64(processes.Running.Load()) }},
		})
		registerCounters(registry, []counter{
			{"server_starts_total", "Server processes that were started.", processes.Starts.Load},
			{"server_start_failures_total", "Server processes that could not be started.", processes.StartFailures.Load},
			{"server_crashes_total", "Server processes that ended, or closed their output, without being asked to: those of sessions, spares and the keeper's.", processes.Crashes.Load},
			{"junk_lines_total", "Lines that servers wrote to standard output and that are no messages.", processes.JunkLines.Load},
			{"oversized_messages_total", "Messages of servers that were larger than they may be.", processes.Oversized.Load},
			{"unaffordable_messages_total", "Messages of servers that the adapter's memory budget had no room for. Their processes were ended.", processes.Unaffordable.Load},
			{"panics_total", "Sessions that ended because of a mistake of the adapter.", processes.Panics.Load},
		})
	}
	if shared := a.backend.shared; shared != nil {
		registerCounters(registry, []counter{
			{"shared_starts_total", "Shared processes that answered initialize.", shared.Starts.Value},
			{"shared_start_failures_total", "Shared processes that did not answer initialize.", shared.StartFailures.Value},
			{"shared_late_answers_total", "Answers of the shared process to calls that were over.", shared.LateAnswers.Value},
			{"shared_late_progress_total", "Progress of the shared process for calls that were over.", shared.LateProgress.Value},
			{"shared_unrouted_messages_total", "Messages of the shared process that belong to no session.", shared.UnroutedMessages.Value},
			{"shared_unforwarded_messages_total", "Messages of clients that the shared process must not see.", shared.UnforwardedMessages.Value},
			{"shared_refused_subscriptions_total", "Subscriptions beyond what a session may have.", shared.SubscriptionRefusals.Value},
			{"shared_log_messages_total", "Log messages of the shared process, which are dropped.", shared.LogMessages.Value},
			{"shared_refused_requests_total", "Requests of the shared process, which nobody can answer.", shared.RefusedRequests.Value},
			{"shared_slow_sessions_total", "Sessions that were ended because they did not read.", shared.SlowSessions.Value},
		})
	}
	a.registerStateless()
	a.registerTranslation()
	if junk := a.backend.junkEvents; junk != nil {
		registerCounters(registry, []counter{
			{"junk_events_total", "Events of the server's stream that are no messages.", junk.Value},
		})
	}
	if proxy := a.backend.proxy; proxy != nil {
		figures := &proxy.Metrics
		registerGauges(registry, []gauge{
			{"upstream_single_requests", "Requests in flight that belong to no session.", func() float64 { return float64(proxy.InFlight()) }},
		})
		registerCounters(registry, []counter{
			{"upstream_call_timeouts_total", "Calls that took longer than they may.", figures.Timeouts.Value},
			{"upstream_forgotten_sessions_total", "Sessions that the server no longer knew.", figures.Forgotten.Value},
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

// registerStateless registers what there is to count of clients without sessions.
func (a *Adapter) registerStateless() {
	sum := func(of func(*stateless.Metrics) *session.Counter) func() uint64 {
		return func() (total uint64) {
			for _, endpoint := range a.backend.eras.endpoints() {
				total += of(endpoint.Metrics()).Value()
			}
			return total
		}
	}
	registerCounters(a.registry, []counter{
		{"stateless_starts_total", "Server processes that were started for clients without sessions.", sum(func(m *stateless.Metrics) *session.Counter { return &m.Starts })},
		{"stateless_start_failures_total", "Server processes that could not be had for clients without sessions, or did not say what they speak.", sum(func(m *stateless.Metrics) *session.Counter { return &m.StartFailures })},
		{"stateless_late_answers_total", "Answers to calls that were over, of clients without sessions.", sum(func(m *stateless.Metrics) *session.Counter { return &m.LateAnswers })},
		{"stateless_late_progress_total", "Progress of calls that were over, of clients without sessions.", sum(func(m *stateless.Metrics) *session.Counter { return &m.LateProgress })},
		{"stateless_log_messages_total", "Log messages that are dropped, because no client without a session wants them or it is not certain whose they are.", sum(func(m *stateless.Metrics) *session.Counter { return &m.LogMessages })},
		{"stateless_unrouted_messages_total", "Messages that belong to no client without a session.", sum(func(m *stateless.Metrics) *session.Counter { return &m.UnroutedMessages })},
		{"stateless_refused_requests_total", "Requests of the server to clients without sessions, which cannot be asked.", sum(func(m *stateless.Metrics) *session.Counter { return &m.RefusedRequests })},
		{"stateless_slow_clients_total", "Requests that ended because their clients, without sessions, did not read.", sum(func(m *stateless.Metrics) *session.Counter { return &m.SlowClients })},
		{"stateless_refused_total", "Requests of clients without sessions beyond a limit.", sum(func(m *stateless.Metrics) *session.Counter { return &m.Refused })},
		{"stateless_call_timeouts_total", "Calls of clients without sessions that took longer than they may.", sum(func(m *stateless.Metrics) *session.Counter { return &m.CallTimeouts })},
	})
}

// registerTranslation registers what there is to count where client and server have no
// era in common.
func (a *Adapter) registerTranslation() {
	modern, legacy := a.backend.eras.modern.Metrics(), &a.backend.eras.legacy
	registerCounters(a.registry, []counter{
		{"tomodern_starts_total", "Servers with sessions that were initialized for clients without.", modern.Starts.Value},
		{"tomodern_start_failures_total", "Servers with sessions that could not be had for clients without, or did not agree.", modern.StartFailures.Value},
		{"tomodern_evictions_total", "Servers with sessions that made room for those of other clients without.", modern.Evictions.Value},
		{"tomodern_kills_total", "Servers with sessions that did not end a call that was cancelled.", modern.Kills.Value},
		{"tomodern_busy_total", "Requests of clients without sessions that found no server with sessions.", modern.Busy.Value},
		{"tomodern_late_answers_total", "Answers of servers with sessions to calls that were over.", modern.LateAnswers.Value},
		{"tomodern_late_progress_total", "Progress of servers with sessions for calls that were over.", modern.LateProgress.Value},
		{"tomodern_log_messages_total", "Log messages of servers with sessions that are dropped, because no client without wants them or it is not certain whose they are.", modern.LogMessages.Value},
		{"tomodern_unrouted_messages_total", "Messages of servers with sessions that belong to no client without.", modern.UnroutedMessages.Value},
		{"tomodern_refused_requests_total", "Requests of servers with sessions that no client without can be asked.", modern.RefusedRequests.Value},
		{"tomodern_parks_total", "Times that a client without a session was asked for input.", modern.Parks.Value},
		{"tomodern_retries_total", "Times that one came back with its input.", modern.Retries.Value},
		{"tomodern_invalid_states_total", "Times that one came back with what was not to be taken: replayed, expired or not its own.", modern.InvalidStates.Value},
		{"tomodern_expired_parks_total", "Calls that ended because nobody came back with input.", modern.ExpiredParks.Value},
		{"tolegacy_rounds_total", "Rounds of questions to clients with sessions for a server without.", legacy.Rounds.Value},
		{"tolegacy_question_timeouts_total", "Questions that clients with sessions did not answer in time.", legacy.QuestionTimeouts.Value},
		{"tolegacy_stopped_calls_total", "Calls that ended because a question had no answer, or there were too many.", legacy.StoppedCalls.Value},
		{"tolegacy_retries_total", "Calls that were repeated because a server without sessions said so.", legacy.Retries.Value},
		{"tolegacy_bad_results_total", "Answers of a server without sessions that cannot be understood.", legacy.BadResults.Value},
		{"tolegacy_refused_subscriptions_total", "Subscriptions beyond what a translated session may have.", legacy.SubscriptionRefusals.Value},
		{"tolegacy_lost_listens_total", "Subscriptions at a server without sessions that ended by themselves.", legacy.LostListens.Value},
		{"tolegacy_dropped_messages_total", "Messages in translated sessions that nobody can use.", legacy.DroppedMessages.Value},
		{"tolegacy_panics_total", "Translated sessions that ended because of a mistake of the adapter.", legacy.Panics.Value},
	})
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

// Package metrics has the name and help text of each metric of the adapter, in one table for
// each part that counts. No metric has a label whose value a client or a server can choose.
package metrics

import (
	"context"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/stateless"
	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/news"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/proxy"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/shared"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/translate/tolegacy"
	"github.com/slipway-mcp/slipway/internal/sidecar/translate/tomodern"
	"github.com/slipway-mcp/slipway/internal/version"
)

// Metric is a counter if its name ends in _total, and otherwise a gauge.
type Metric struct {
	name, help string
	value      func() float64
	labels     prometheus.Labels
}

// Register adds metrics to a registry.
func Register(registry *prometheus.Registry, metrics []Metric) {
	for _, m := range metrics {
		options := prometheus.Opts{Namespace: "slipway", Subsystem: "adapter", Name: m.name, Help: m.help, ConstLabels: m.labels}
		if strings.HasSuffix(m.name, "_total") {
			registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts(options), m.value))
		} else {
			registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts(options), m.value))
		}
	}
}

// RegisterBuild adds the metric that says which build this is.
func RegisterBuild(registry *prometheus.Registry) {
	build := version.Get()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slipway", Name: "build_info", Help: "Version, commit and Go version of the adapter, as labels. The value is always 1.",
		ConstLabels: prometheus.Labels{"version": build.Version, "commit": build.Commit, "go_version": build.GoVersion},
	}, func() float64 { return 1 }))
}

func metric[Number int | int64 | uint64 | float64](name, help string, value func() Number) Metric {
	return Metric{name: name, help: help, value: func() float64 { return float64(value()) }}
}

// Keeper is whether the server works.
func Keeper(ready func() bool) []Metric {
	return []Metric{metric("ready", "1 if a fresh server process or connection answered the adapter's last check.", func() int {
		if ready() {
			return 1
		}
		return 0
	})}
}

// Connections are those of clients.
func Connections(s *listener.Server) []Metric {
	return []Metric{
		metric("connections", "Open connections from clients.", s.Connections),
		metric("connections_limit", "Connections that clients may have open at the same time.", s.Limit),
		metric("refused_connections_total", "Client connections refused because the limit was reached and no idle connection could be closed.", s.Refused),
		metric("evicted_connections_total", "Idle client connections closed to make room for new ones.", s.Evicted),
	}
}

// Peers are the requests that this pod passes on to other pods, and the connections for them.
func Peers(r *relay.Relay, list *roster.Roster, n *news.News) []Metric {
	metrics := []Metric{
		metric("peer_list_age_seconds", "Seconds since the manager last sent or confirmed the list of the server's pods. 0 if it never did.", func() float64 { return list.Age().Seconds() }),
		metric("peer_connections", "Open connections to other pods of the same MCPServer.", r.Connections),
		metric("forwarded_streams", "Client streams at this pod that another pod answers.", r.Streams),
		metric("waiting_streams", "Client streams at this pod that wait until it can forward another one to their pod.", r.Waiting),
		metric("news_streams", "Streams through which this pod receives change notifications from other pods, for clients that listen here.", n.Streams),
	}
	for _, outcome := range relay.ForwardOutcomes() {
		forwards := metric("forwarded_total", "Attempts to forward a request to the pod that has its session, its state or its group, by outcome.", func() uint64 { return r.Forwards(outcome) })
		forwards.labels = prometheus.Labels{"outcome": outcome.String()}
		metrics = append(metrics, forwards)
	}
	for _, outcome := range relay.DialOutcomes() {
		dials := metric("peer_dials_total", "Attempts to connect to other pods, by outcome. unready means that the pod can be reached but accepts no connection. busy means that this pod reached its own limit.", func() uint64 { return r.Dials(outcome) })
		dials.labels = prometheus.Labels{"outcome": outcome.String()}
		metrics = append(metrics, dials)
	}
	return metrics
}

// Placement is where new sessions begin.
func Placement(p *peer.Placer) []Metric {
	metrics := []Metric{metric("cordoned", "1 while the manager asks this pod to place new sessions on other pods.", func() int {
		if p.Cordoned() {
			return 1
		}
		return 0
	})}
	for _, what := range peer.Placings() {
		placed := metric("placed_total", "Clients that asked this pod for a session, by where the session started: here, or on a peer. Clients that got a 503 count as refused.", func() uint64 { return p.Placed(what) })
		placed.labels = prometheus.Labels{"where": what.String()}
		metrics = append(metrics, placed)
	}
	return metrics
}

// Memory is the budget, and the bodies that it has or had room for.
func Memory(b *budget.Budget, bodies *edge.Memory) []Metric {
	return []Metric{
		metric("budget_bytes", "Memory budget: bytes of messages that the adapter may hold at the same time.", b.Limit),
		metric("budget_used_bytes", "Bytes of the memory budget in use. The fixed allowance of each session is not included.", b.Used),
		metric("budget_waits_total", "Times that the adapter paused reading a large message from a server because the memory budget was used up.", b.Waits),
		metric("refused_bodies_total", "Requests refused because the memory budget had no room for the body.", bodies.Refused),
		metric("evicted_bodies_total", "Requests canceled because their body arrived slowly and other requests needed the memory.", bodies.Evicted),
	}
}

// Sessions are the open ones, clients that found every session slot taken, and messages that
// sessions could not deliver.
func Sessions(r *session.Registry, limit int, m *session.Metrics) []Metric {
	metrics := []Metric{
		metric("sessions", "Open sessions.", r.Len),
		metric("sessions_limit", "Sessions that may be open at the same time.", func() int { return limit }),
		metric("draining", "1 while the pod drains and opens no new sessions.", func() int {
			if r.Draining().Err() != nil {
				return 1
			}
			return 0
		}),
		metric("refused_sessions_total", "Clients that got no session because every session slot was taken and no session could be evicted. Includes clients that disconnected while they waited.", r.Places.Refused),
		metric("dropped_notifications_total", "Notifications dropped because the client did not read them.", m.DroppedNotifications.Value),
		metric("abandoned_answers_total", "Responses discarded because the client did not reconnect to fetch them.", m.AbandonedAnswers.Value),
		metric("abandoned_streams_total", "Call streams discarded because too many were waiting for their client to reconnect.", m.AbandonedStreams.Value),
		metric("refused_server_requests_total", "Requests from the server refused because too many were waiting for an answer from the client.", m.RefusedRequests.Value),
		metric("expired_server_requests_total", "Requests from the server that no client received or answered in time.", m.ExpiredRequests.Value),
		metric("dropped_replies_total", "Replies to pings and to refused server requests that the server did not read.", m.DroppedReplies.Value),
		metric("unmatched_progress_total", "Progress notifications that match no call in flight.", m.UnmatchedProgress.Value),
		metric("unmatched_answers_total", "Responses that match no request in flight.", m.UnmatchedAnswers.Value),
		metric("call_timeouts_total", "Calls that exceeded their time limit.", m.CallTimeouts.Value),
		metric("slow_sessions_total", "Sessions ended because the client did not read and other sessions needed the memory.", m.SlowClients.Value),
		metric("server_stalls_total", "Times that the adapter stopped reading from a server because its client was not reading.", m.Stalls.Value),
	}
	for _, use := range places.Uses() {
		evicted := metric("evicted_sessions_total", "Idle sessions ended to free a slot when all slots were taken, by what their clients had done (use): opened, listed or worked.", func() uint64 { return r.Places.Evicted(use) })
		evicted.labels = prometheus.Labels{"use": use.String()}
		metrics = append(metrics, evicted)
	}
	return metrics
}

// Processes are those of a stdio server.
func Processes(m *child.Metrics) []Metric {
	return []Metric{
		metric("server_processes", "Running server processes, including pre-started processes and the one that the adapter uses for its own checks.", m.Running.Load),
		metric("server_starts_total", "Server processes started.", m.Starts.Load),
		metric("server_start_failures_total", "Server processes that failed to start.", m.StartFailures.Load),
		metric("server_crashes_total", "Server processes that exited, or closed standard output, without being asked to. Includes pre-started processes and the one for the adapter's own checks.", m.Crashes.Load),
		metric("junk_lines_total", "Lines on the server's standard output that are not MCP messages.", m.JunkLines.Load),
		metric("oversized_messages_total", "Messages from servers that exceeded the size limit.", m.Oversized.Load),
		metric("unaffordable_messages_total", "Messages from servers that found no room in the memory budget within 30 s. The adapter ended their processes.", m.Unaffordable.Load),
		metric("panics_total", "Sessions ended by a bug in the adapter.", m.Panics.Load),
	}
}

// memoryAge is how old an answer may be, so that all metrics of a scrape share one.
const memoryAge = 500 * time.Millisecond

// ServerMemory is what the server's container uses. A scrape asks for it.
func ServerMemory(of child.Measured) []Metric {
	var mu sync.Mutex
	var asked time.Time
	var memory launcher.Memory
	var err error
	value := func(part func(launcher.Memory) uint64) func() float64 {
		return func() float64 {
			mu.Lock()
			defer mu.Unlock()
			if time.Since(asked) > memoryAge {
				memory, err = of.Memory(context.Background())
				asked = time.Now()
			}
			if err != nil { // the container may not run
				return math.NaN()
			}
			return float64(part(memory))
		}
	}
	return []Metric{
		{
			name: "server_memory_bytes", help: "Memory that the server's container uses, without reclaimable file cache. NaN while the container does not run.",
			value: value(func(m launcher.Memory) uint64 { return m.Used }),
		},
		{
			name: "server_memory_limit_bytes", help: "Memory limit of the server's container. 0 means no limit.",
			value: value(func(m launcher.Memory) uint64 { return m.Limit }),
		},
	}
}

// Shared is the process that serves all sessions.
func Shared(m *shared.Metrics) []Metric {
	return []Metric{
		metric("shared_starts_total", "Shared processes that started and answered initialize.", m.Starts.Value),
		metric("shared_start_failures_total", "Shared processes that did not answer initialize.", m.StartFailures.Value),
		metric("shared_late_answers_total", "Responses of the shared process that arrived after the call had ended.", m.LateAnswers.Value),
		metric("shared_late_progress_total", "Progress notifications of the shared process that arrived after the call had ended.", m.LateProgress.Value),
		metric("shared_unrouted_messages_total", "Messages of the shared process that belong to no session.", m.UnroutedMessages.Value),
		metric("shared_unforwarded_messages_total", "Client messages that the adapter does not forward to a shared process.", m.UnforwardedMessages.Value),
		metric("shared_refused_subscriptions_total", "Subscriptions refused because the session reached its limit.", m.SubscriptionRefusals.Value),
		metric("shared_log_messages_total", "Log messages of the shared process. The adapter drops them.", m.LogMessages.Value),
		metric("shared_refused_requests_total", "Requests of the shared process refused because no client can answer them.", m.RefusedRequests.Value),
		metric("shared_slow_sessions_total", "Sessions ended because the client did not read. slipway_adapter_slow_sessions_total does not include them.", m.SlowSessions.Value),
	}
}

// HTTPSSE is a server that speaks the transport of 2024-11-05.
func HTTPSSE(junk *session.Counter) []Metric {
	return []Metric{
		metric("junk_events_total", "Events on the server's stream that are not MCP messages.", junk.Value),
	}
}

// Proxy is the proxy of a server that speaks Streamable HTTP.
func Proxy(p *proxy.Proxy) []Metric {
	m := &p.Metrics
	return []Metric{
		metric("upstream_single_requests", "Requests in flight that belong to no session.", p.InFlight),
		metric("upstream_call_timeouts_total", "Calls that exceeded their time limit.", m.Timeouts.Value),
		metric("upstream_forgotten_sessions_total", "Sessions that the server no longer recognized.", m.Forgotten.Value),
		metric("upstream_refused_total", "Requests refused because a limit was reached.", m.Refused.Value),
		metric("upstream_unavailable_total", "Requests that found no server listening at its port.", m.Unavailable.Value),
		metric("upstream_broken_total", "Requests that the server did not answer, or answered only in part.", m.Broken.Value),
	}
}

// Stateless is for requests without a session.
func Stateless(front *stateless.Metrics, m *sessionless.Metrics) []Metric {
	return []Metric{
		metric("stateless_starts_total", "Server processes started for clients without sessions.", m.Starts.Value),
		metric("stateless_start_failures_total", "Server processes for clients without sessions that failed to start, or did not report a protocol revision.", m.StartFailures.Value),
		metric("stateless_late_answers_total", "Responses to clients without sessions that arrived after the call had ended.", m.LateAnswers.Value),
		metric("stateless_late_progress_total", "Progress notifications for clients without sessions that arrived after the call had ended.", m.LateProgress.Value),
		metric("stateless_log_messages_total", "Log messages dropped because no client without a session asked for them, or because their client is unknown.", m.LogMessages.Value),
		metric("stateless_unrouted_messages_total", "Messages that belong to no client without a session.", m.UnroutedMessages.Value),
		metric("stateless_refused_requests_total", "Requests of the server refused because clients without sessions cannot answer them.", m.RefusedRequests.Value),
		metric("stateless_slow_clients_total", "Requests without a session ended because the client did not read.", m.SlowClients.Value),
		metric("stateless_refused_total", "Requests without a session refused because a limit was reached.", front.Refused.Value),
		metric("stateless_call_timeouts_total", "Calls without a session that exceeded their time limit.", front.CallTimeouts.Value),
	}
}

// Translation is for clients and servers that have no era in common.
func Translation(modern *tomodern.Metrics, legacy *tolegacy.Metrics) []Metric {
	return []Metric{
		metric("tomodern_starts_total", "Servers with sessions initialized for clients without sessions.", modern.Starts.Value),
		metric("tomodern_start_failures_total", "Servers with sessions that failed to start for clients without sessions, or agreed on no revision.", modern.StartFailures.Value),
		metric("tomodern_evictions_total", "Servers with sessions ended to make room for the servers of other clients without sessions.", modern.Evictions.Value),
		metric("tomodern_kills_total", "Servers with sessions ended because they did not stop a canceled call.", modern.Kills.Value),
		metric("tomodern_busy_total", "Requests without a session that found no free server with sessions.", modern.Busy.Value),
		metric("tomodern_late_answers_total", "Responses of translated servers with sessions that arrived after the call had ended.", modern.LateAnswers.Value),
		metric("tomodern_late_progress_total", "Progress notifications of translated servers with sessions that arrived after the call had ended.", modern.LateProgress.Value),
		metric("tomodern_log_messages_total", "Log messages of translated servers with sessions, dropped because no client asked for them or because their client is unknown.", modern.LogMessages.Value),
		metric("tomodern_unrouted_messages_total", "Messages of translated servers with sessions that belong to no client.", modern.UnroutedMessages.Value),
		metric("tomodern_refused_requests_total", "Requests of translated servers with sessions refused because clients without sessions cannot answer them.", modern.RefusedRequests.Value),
		metric("tomodern_parks_total", "Calls suspended to ask a client without a session for input.", modern.Parks.Value),
		metric("tomodern_retries_total", "Suspended calls that a client resumed with its input.", modern.Retries.Value),
		metric("tomodern_invalid_states_total", "Attempts to resume a suspended call that the adapter rejected: replayed, expired, or of another caller.", modern.InvalidStates.Value),
		metric("tomodern_expired_parks_total", "Suspended calls ended because no client sent the input in time.", modern.ExpiredParks.Value),
		metric("tolegacy_rounds_total", "Rounds of questions sent to clients with sessions for a server without sessions.", legacy.Rounds.Value),
		metric("tolegacy_question_timeouts_total", "Questions that clients with sessions did not answer in time.", legacy.QuestionTimeouts.Value),
		metric("tolegacy_stopped_calls_total", "Calls ended because a question got no answer, or because the server asked too many.", legacy.StoppedCalls.Value),
		metric("tolegacy_retries_total", "Calls repeated because a server without sessions asked for it.", legacy.Retries.Value),
		metric("tolegacy_bad_results_total", "Responses of a server without sessions that the adapter could not understand.", legacy.BadResults.Value),
		metric("tolegacy_refused_subscriptions_total", "Subscriptions refused because a translated session reached its limit.", legacy.SubscriptionRefusals.Value),
		metric("tolegacy_lost_listens_total", "Subscriptions that a server without sessions ended by itself.", legacy.LostListens.Value),
		metric("tolegacy_dropped_messages_total", "Messages in translated sessions that neither side can use.", legacy.DroppedMessages.Value),
		metric("tolegacy_panics_total", "Translated sessions ended by a bug in the adapter.", legacy.Panics.Value),
	}
}

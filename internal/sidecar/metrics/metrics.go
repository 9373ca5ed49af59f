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
		Namespace: "slipway", Name: "build_info", Help: "The build, as labels.",
		ConstLabels: prometheus.Labels{"version": build.Version, "commit": build.Commit, "go_version": build.GoVersion},
	}, func() float64 { return 1 }))
}

func metric[Number int | int64 | uint64 | float64](name, help string, value func() Number) Metric {
	return Metric{name: name, help: help, value: func() float64 { return float64(value()) }}
}

// Keeper is whether the server works.
func Keeper(ready func() bool) []Metric {
	return []Metric{metric("ready", "Whether a fresh server answered when last tried.", func() int {
		if ready() {
			return 1
		}
		return 0
	})}
}

// Connections are those of clients.
func Connections(s *listener.Server) []Metric {
	return []Metric{
		metric("connections", "Connections of clients that are open.", s.Connections),
		metric("connections_limit", "Connections of clients that may be open at a time.", s.Limit),
		metric("refused_connections_total", "Connections of clients beyond what may be open, while none of the others could make room.", s.Refused),
		metric("evicted_connections_total", "Connections without a request in flight that made room for others.", s.Evicted),
	}
}

// Peers are the requests that this pod passes on to other pods, and the connections for them.
func Peers(r *relay.Relay, list *roster.Roster, n *news.News) []Metric {
	metrics := []Metric{
		metric("peer_list_age_seconds", "Time since the manager last pushed or renewed its list of the server's pods.", func() float64 { return list.Age().Seconds() }),
		metric("peer_connections", "Connections to other pods that are open.", r.Connections),
		metric("forwarded_streams", "Streams of clients here that another pod answers.", r.Streams),
		metric("news_streams", "Streams by which this pod hears of changes at other pods, for clients here that listen.", n.Streams),
	}
	for _, outcome := range relay.ForwardOutcomes() {
		forwards := metric("forwarded_total", "Attempts to pass a request on to the pod with its session, its state, or what the server remembers of its group, by outcome.", func() uint64 { return r.Forwards(outcome) })
		forwards.labels = prometheus.Labels{"outcome": outcome.String()}
		metrics = append(metrics, forwards)
	}
	for _, outcome := range relay.DialOutcomes() {
		dials := metric("peer_dials_total", "Attempts to connect to other pods, by outcome.", func() uint64 { return r.Dials(outcome) })
		dials.labels = prometheus.Labels{"outcome": outcome.String()}
		metrics = append(metrics, dials)
	}
	return metrics
}

// Placement is where new sessions begin.
func Placement(p *peer.Placer) []Metric {
	metrics := []Metric{metric("cordoned", "Whether the manager says that new sessions should begin at other pods.", func() int {
		if p.Cordoned() {
			return 1
		}
		return 0
	})}
	for _, what := range peer.Placings() {
		placed := metric("placed_total", "Clients here that wanted a session, by where it began: here or at a peer. Those that got none are refused.", func() uint64 { return p.Placed(what) })
		placed.labels = prometheus.Labels{"where": what.String()}
		metrics = append(metrics, placed)
	}
	return metrics
}

// Memory is the budget, and the bodies that it has or had room for.
func Memory(b *budget.Budget, bodies *edge.Memory) []Metric {
	return []Metric{
		metric("budget_bytes", "Bytes of messages that the adapter may hold at a time.", b.Limit),
		metric("budget_used_bytes", "Bytes of messages that the adapter holds, beside what is free for each session.", b.Used),
		metric("budget_waits_total", "Times that a message of a server was not read on because the memory budget had no room for it.", b.Waits),
		metric("refused_bodies_total", "Requests that found no room for their body.", bodies.Refused),
		metric("evicted_bodies_total", "Requests whose body came slowly and made room for others.", bodies.Evicted),
	}
}

// Sessions are the open ones, clients that found every session slot taken, and messages that
// sessions could not deliver.
func Sessions(r *session.Registry, limit int, m *session.Metrics) []Metric {
	metrics := []Metric{
		metric("sessions", "Sessions that are open.", r.Len),
		metric("sessions_limit", "Sessions that may be open at a time.", func() int { return limit }),
		metric("draining", "1 while the pod drains: it opens no sessions any more.", func() int {
			if r.Draining().Err() != nil {
				return 1
			}
			return 0
		}),
		metric("refused_sessions_total", "Clients that found every session slot taken, and no session that could end for them.", r.Places.Refused),
		metric("dropped_notifications_total", "Notifications given up because a client did not read.", m.DroppedNotifications.Value),
		metric("abandoned_answers_total", "Answers given up because the client did not come back for them.", m.AbandonedAnswers.Value),
		metric("abandoned_streams_total", "Streams of calls given up because there were too many that the client had not come back for.", m.AbandonedStreams.Value),
		metric("refused_server_requests_total", "Requests of servers beyond what may wait for an answer of the client.", m.RefusedRequests.Value),
		metric("expired_server_requests_total", "Requests of servers that no client took, or answered, in time.", m.ExpiredRequests.Value),
		metric("dropped_replies_total", "Answers of the adapter to pings and refused requests of servers that did not read them.", m.DroppedReplies.Value),
		metric("unmatched_progress_total", "Progress of no call that was in flight.", m.UnmatchedProgress.Value),
		metric("unmatched_answers_total", "Answers to no request that was in flight.", m.UnmatchedAnswers.Value),
		metric("call_timeouts_total", "Calls that took longer than they may.", m.CallTimeouts.Value),
		metric("slow_sessions_total", "Sessions that ended because their clients did not read and others needed the memory.", m.SlowClients.Value),
		metric("server_stalls_total", "Times that a server was not read because its client did not.", m.Stalls.Value),
	}
	for _, use := range places.Uses() {
		evicted := metric("evicted_sessions_total", "Idle sessions that ended for others because every session slot was taken, by what their clients had done: opened, listed, worked.", func() uint64 { return r.Places.Evicted(use) })
		evicted.labels = prometheus.Labels{"use": use.String()}
		metrics = append(metrics, evicted)
	}
	return metrics
}

// Processes are those of a stdio server.
func Processes(m *child.Metrics) []Metric {
	return []Metric{
		metric("server_processes", "Server processes that run, spares and the keeper's among them.", m.Running.Load),
		metric("server_starts_total", "Server processes that were started.", m.Starts.Load),
		metric("server_start_failures_total", "Server processes that could not be started.", m.StartFailures.Load),
		metric("server_crashes_total", "Server processes that ended, or closed their output, without being asked to: those of sessions, spares and the keeper's.", m.Crashes.Load),
		metric("junk_lines_total", "Lines that servers wrote to standard output and that are no messages.", m.JunkLines.Load),
		metric("oversized_messages_total", "Messages of servers that were larger than they may be.", m.Oversized.Load),
		metric("unaffordable_messages_total", "Messages of servers that the adapter's memory budget had no room for. Their processes were ended.", m.Unaffordable.Load),
		metric("panics_total", "Sessions that ended because of a mistake of the adapter.", m.Panics.Load),
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
			name: "server_memory_bytes", help: "Memory that the server's container uses, without file cache that the kernel can drop.",
			value: value(func(m launcher.Memory) uint64 { return m.Used }),
		},
		{
			name: "server_memory_limit_bytes", help: "Memory that the server's container may use. 0 is no limit.",
			value: value(func(m launcher.Memory) uint64 { return m.Limit }),
		},
	}
}

// Shared is the process that serves all sessions.
func Shared(m *shared.Metrics) []Metric {
	return []Metric{
		metric("shared_starts_total", "Shared processes that answered initialize.", m.Starts.Value),
		metric("shared_start_failures_total", "Shared processes that did not answer initialize.", m.StartFailures.Value),
		metric("shared_late_answers_total", "Answers of the shared process to calls that were over.", m.LateAnswers.Value),
		metric("shared_late_progress_total", "Progress of the shared process for calls that were over.", m.LateProgress.Value),
		metric("shared_unrouted_messages_total", "Messages of the shared process that belong to no session.", m.UnroutedMessages.Value),
		metric("shared_unforwarded_messages_total", "Messages of clients that the shared process must not see.", m.UnforwardedMessages.Value),
		metric("shared_refused_subscriptions_total", "Subscriptions beyond what a session may have.", m.SubscriptionRefusals.Value),
		metric("shared_log_messages_total", "Log messages of the shared process, which are dropped.", m.LogMessages.Value),
		metric("shared_refused_requests_total", "Requests of the shared process, which no client can answer.", m.RefusedRequests.Value),
		metric("shared_slow_sessions_total", "Sessions that were ended because they did not read.", m.SlowSessions.Value),
	}
}

// HTTPSSE is a server that speaks the transport of 2024-11-05.
func HTTPSSE(junk *session.Counter) []Metric {
	return []Metric{
		metric("junk_events_total", "Events of the server's stream that are no messages.", junk.Value),
	}
}

// Proxy is the proxy of a server that speaks Streamable HTTP.
func Proxy(p *proxy.Proxy) []Metric {
	m := &p.Metrics
	return []Metric{
		metric("upstream_single_requests", "Requests in flight that belong to no session.", p.InFlight),
		metric("upstream_call_timeouts_total", "Calls that took longer than they may.", m.Timeouts.Value),
		metric("upstream_forgotten_sessions_total", "Sessions that the server no longer knew.", m.Forgotten.Value),
		metric("upstream_refused_total", "Requests beyond a limit.", m.Refused.Value),
		metric("upstream_unavailable_total", "Requests that found no server at its port.", m.Unavailable.Value),
		metric("upstream_broken_total", "Requests that the server failed to answer, or to its end.", m.Broken.Value),
	}
}

// Stateless is for requests without a session.
func Stateless(front *stateless.Metrics, m *sessionless.Metrics) []Metric {
	return []Metric{
		metric("stateless_starts_total", "Server processes that were started for clients without sessions.", m.Starts.Value),
		metric("stateless_start_failures_total", "Server processes that could not be had for clients without sessions, or did not say what they speak.", m.StartFailures.Value),
		metric("stateless_late_answers_total", "Answers to calls that were over, of clients without sessions.", m.LateAnswers.Value),
		metric("stateless_late_progress_total", "Progress of calls that were over, of clients without sessions.", m.LateProgress.Value),
		metric("stateless_log_messages_total", "Log messages that are dropped, because no client without a session wants them or it is not certain whose they are.", m.LogMessages.Value),
		metric("stateless_unrouted_messages_total", "Messages that belong to no client without a session.", m.UnroutedMessages.Value),
		metric("stateless_refused_requests_total", "Requests of the server to clients without sessions, which cannot be asked.", m.RefusedRequests.Value),
		metric("stateless_slow_clients_total", "Requests that ended because their clients, without sessions, did not read.", m.SlowClients.Value),
		metric("stateless_refused_total", "Requests of clients without sessions beyond a limit.", front.Refused.Value),
		metric("stateless_call_timeouts_total", "Calls of clients without sessions that took longer than they may.", front.CallTimeouts.Value),
	}
}

// Translation is for clients and servers that have no era in common.
func Translation(modern *tomodern.Metrics, legacy *tolegacy.Metrics) []Metric {
	return []Metric{
		metric("tomodern_starts_total", "Servers with sessions that were initialized for clients without.", modern.Starts.Value),
		metric("tomodern_start_failures_total", "Servers with sessions that could not be had for clients without, or did not agree.", modern.StartFailures.Value),
		metric("tomodern_evictions_total", "Servers with sessions that made room for those of other clients without.", modern.Evictions.Value),
		metric("tomodern_kills_total", "Servers with sessions that did not end a call that was cancelled.", modern.Kills.Value),
		metric("tomodern_busy_total", "Requests of clients without sessions that found no server with sessions.", modern.Busy.Value),
		metric("tomodern_late_answers_total", "Answers of servers with sessions to calls that were over.", modern.LateAnswers.Value),
		metric("tomodern_late_progress_total", "Progress of servers with sessions for calls that were over.", modern.LateProgress.Value),
		metric("tomodern_log_messages_total", "Log messages of servers with sessions that are dropped, because no client without wants them or it is not certain whose they are.", modern.LogMessages.Value),
		metric("tomodern_unrouted_messages_total", "Messages of servers with sessions that belong to no client without.", modern.UnroutedMessages.Value),
		metric("tomodern_refused_requests_total", "Requests of servers with sessions that no client without can be asked.", modern.RefusedRequests.Value),
		metric("tomodern_parks_total", "Times that a client without a session was asked for input.", modern.Parks.Value),
		metric("tomodern_retries_total", "Times that one came back with its input.", modern.Retries.Value),
		metric("tomodern_invalid_states_total", "Times that one came back with what was not to be taken: replayed, expired or not its own.", modern.InvalidStates.Value),
		metric("tomodern_expired_parks_total", "Calls that ended because no client came back with input.", modern.ExpiredParks.Value),
		metric("tolegacy_rounds_total", "Rounds of questions to clients with sessions for a server without.", legacy.Rounds.Value),
		metric("tolegacy_question_timeouts_total", "Questions that clients with sessions did not answer in time.", legacy.QuestionTimeouts.Value),
		metric("tolegacy_stopped_calls_total", "Calls that ended because a question had no answer, or there were too many.", legacy.StoppedCalls.Value),
		metric("tolegacy_retries_total", "Calls that were repeated because a server without sessions said so.", legacy.Retries.Value),
		metric("tolegacy_bad_results_total", "Answers of a server without sessions that cannot be understood.", legacy.BadResults.Value),
		metric("tolegacy_refused_subscriptions_total", "Subscriptions beyond what a translated session may have.", legacy.SubscriptionRefusals.Value),
		metric("tolegacy_lost_listens_total", "Subscriptions at a server without sessions that ended by themselves.", legacy.LostListens.Value),
		metric("tolegacy_dropped_messages_total", "Messages in translated sessions that neither side can use.", legacy.DroppedMessages.Value),
		metric("tolegacy_panics_total", "Translated sessions that ended because of a mistake of the adapter.", legacy.Panics.Value),
	}
}

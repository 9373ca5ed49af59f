// Package option is the table of what users set: each option of the adapter has a flag and a field.
// A user who runs the adapter on a laptop sets flags. A user of Kubernetes sets fields of an MCPServer,
// and does not see the flags that the manager derives from them. The manager, the adapter and the
// documentation read this table, so it imports only the standard library.
package option

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Option is an option of the adapter. Texts for users name it.
type Option struct {
	Flag  string // of adapter serve
	Field string // of an MCPServer
	As    Rendering
}

// Name is the flag without its dashes.
func (o Option) Name() string { return strings.TrimPrefix(o.Flag, "--") }

// Rendering says how the manager makes a flag of a field. A field that is left out, or false, sets none.
type Rendering uint8

// The renderings.
const (
	AsItIs     Rendering = iota // the number, duration, name or boolean that the spec's JSON has
	AsBytes                     // a quantity becomes a number of bytes
	ByCode                      // the rules of package workload decide
	BySettings                  // no flag: adapters read it from their settings, while they run
)

// The options, in the order of the manager's flags and of the documentation. Pods restart if the order
// of those that are AsItIs or AsBytes changes.
var (
	Transport        = row("--transport", "spec.transport.type", ByCode)
	Upstream         = row("--upstream", "spec.transport.streamableHTTP", ByCode)
	Sessions         = row("--sessions", "spec.transport.sessions", ByCode)
	Framing          = row("--framing", "spec.transport.stdio.framing", ByCode)
	Isolation        = row("--isolation", "spec.session.isolation", ByCode)
	StatelessClients = row("--stateless-clients", "spec.session.statelessClients", AsItIs)
	Warm             = row("--warm", "spec.session.warm", ByCode)
	MaxSessions      = row("--max-sessions", "spec.session.maxPerPod", AsItIs)
	StartTimeout     = row("--start-timeout", "spec.session.startTimeout", AsItIs)
	IdleTimeout      = row("--idle-timeout", "spec.session.idleTimeout", AsItIs)
	MaxLifetime      = row("--max-lifetime", "spec.session.maxLifetime", AsItIs)
	CallTimeout      = row("--call-timeout", "spec.session.callTimeout", AsItIs)
	AnswerTimeout    = row("--answer-timeout", "spec.session.answerTimeout", AsItIs)
	DrainTimeout     = row("--drain-timeout", "spec.session.drainTimeout", ByCode)
	MemoryLimit      = row("--memory-limit", "spec.adapter.resources.limits.memory", ByCode)
	BodyBytes        = row("--limit-body-bytes", "spec.adapter.limits.body", AsBytes)
	LineBytes        = row("--limit-line-bytes", "spec.adapter.limits.line", AsBytes)
	ReplayBytes      = row("--limit-replay-bytes", "spec.adapter.limits.replay", AsBytes)
	Calls            = row("--limit-calls", "spec.adapter.limits.callsPerSession", AsItIs)
	Streams          = row("--limit-streams", "spec.adapter.limits.streamsPerSession", AsItIs)
	Starts           = row("--limit-starts", "spec.adapter.limits.concurrentStarts", AsItIs)
	LegacySSE        = row("--legacy-sse", "spec.adapter.legacySSE", AsItIs)
	OfferRoots       = row("--offer-roots", "spec.adapter.offerRoots", AsItIs)
	AllowedHosts     = row("--allowed-host", "spec.adapter.allowedHosts", BySettings)
	AllowedOrigins   = row("--allowed-origin", "spec.adapter.allowedOrigins", BySettings)
	Verbosity        = row("--verbosity", "spec.adapter.verbosity", BySettings)
)

var all []Option

// row adds an option to the table, so that every option that code can name is in the table.
func row(flag, field string, as Rendering) Option {
	o := Option{flag, field, as}
	all = append(all, o)
	return o
}

// All returns the options in their order.
func All() iter.Seq[Option] { return slices.Values(all) }

// Names chooses between the two names of an option. The zero value names flags.
type Names struct {
	Fields bool // an MCPServer configures the adapter
}

// Of returns the name that the user sets.
func (n Names) Of(o Option) string {
	if n.Fields {
		return o.Field
	}
	return o.Flag
}

// Reached adds the name and the value of the limit that caused an error.
func (n Names) Reached(err error, o Option, limit int) error {
	return fmt.Errorf("%w: %s is %d", err, n.Of(o), limit)
}

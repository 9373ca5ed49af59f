// Package option names the options of the adapter in texts for users. A user who runs the adapter on a
// laptop sets flags. A user of Kubernetes sets fields of an MCPServer, and does not see the flags that
// the manager derives from them.
package option

import "fmt"

// Option is an option of the adapter.
type Option struct {
	Flag  string // of adapter serve
	Field string // of an MCPServer
}

// The options that texts for users name.
var (
	MaxSessions    = Option{"--max-sessions", "spec.session.maxPerPod"}
	LegacySSE      = Option{"--legacy-sse", "spec.adapter.legacySSE"}
	AllowedHosts   = Option{"--allowed-host", "spec.adapter.allowedHosts"}
	AllowedOrigins = Option{"--allowed-origin", "spec.adapter.allowedOrigins"}
	BodyBytes      = Option{"--limit-body-bytes", "spec.adapter.limits.body"}
	LineBytes      = Option{"--limit-line-bytes", "spec.adapter.limits.line"}

	StatelessClients = Option{"--stateless-clients", "spec.session.statelessClients"}
)

// MemoryLimit is not among All, because its field is a key of a map.
var MemoryLimit = Option{"--memory-limit", "spec.adapter.resources.limits.memory"}

// All returns the options, for tests.
func All() []Option {
	return []Option{MaxSessions, LegacySSE, AllowedHosts, AllowedOrigins, BodyBytes, LineBytes, StatelessClients}
}

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

// Package config says how an adapter behaves: what users can set, the defaults, and which
// values make sense together.
package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/internal/sidecar/option"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
	"github.com/slipway-mcp/slipway/internal/sidecar/settings"
)

// Config is the configuration of one adapter. The zero value of a field is not a default;
// Defaults has them.
type Config struct {
	Transport        Transport
	UpstreamURL      *url.URL // of a server that speaks HTTP
	Framing          rpc.Framing
	Era              sessionless.Era // of a server that does not speak HTTP+SSE; Auto finds out
	Shared           bool            // one process for all sessions of a stdio server
	StatelessClients StatelessClients
	OfferRoots       bool          // let servers with sessions ask clients without for their roots
	LegacySSE        bool          // also serve clients that know only the transport of 2024-11-05
	Origins          origin.Policy // without Settings

	MaxSessions  int
	Patience     time.Duration // of a client that finds every session slot taken; 0 ends no session for it
	IdleTimeout  time.Duration
	MaxLifetime  time.Duration
	CallTimeout  time.Duration
	ParkTimeout  time.Duration
	DrainTimeout time.Duration
	SettleTime   time.Duration // for clients to learn that the instance goes away, before it drains
	StartTimeout time.Duration // for a server to start and answer its first request
	Warm         int

	MemoryLimit       int64 // of the adapter's container; 0 is none
	BodyBytes         int64
	LineBytes         int
	ReplayBytes       int
	StreamsPerSession int
	CallsPerSession   int
	ConcurrentStarts  int

	Owner sessionid.Owner
	Keys  *keys.Keys
	// Settings are the values that change while the adapter runs. Nil stands for Origins,
	// which never change.
	Settings *settings.Live
	Log      logr.Logger

	// Names has the names of options in texts for users.
	Names option.Names

	// Recorded is called at the end of each request; may be nil.
	Recorded func(edge.Record)
}

// Defaults returns the configuration of an adapter whose user sets nothing.
func Defaults() Config {
	return Config{
		MaxSessions:  20,
		Patience:     places.Patience,
		IdleTimeout:  30 * time.Minute,
		MaxLifetime:  24 * time.Hour,
		CallTimeout:  10 * time.Minute,
		ParkTimeout:  10 * time.Minute,
		DrainTimeout: time.Minute,
		StartTimeout: time.Minute,
		Warm:         1,

		BodyBytes:         32 << 20,
		LineBytes:         64 << 20,
		ReplayBytes:       1 << 20,
		StreamsPerSession: 16,
		CallsPerSession:   1024,
		ConcurrentStarts:  4,
	}
}

// Validate returns an error that names all values that make no sense.
func (c *Config) Validate() error {
	return errors.Join(
		checkRange("max-sessions", int64(c.MaxSessions), 1, 1<<20),
		checkRange("memory-limit", c.MemoryLimit, 0, 1<<40),
		checkRange("warm", int64(c.Warm), 0, 1<<20),
		checkRange("limit-body-bytes", c.BodyBytes, 1<<10, 1<<32),
		checkRange("limit-line-bytes", int64(c.LineBytes), 1<<10, 1<<32),
		checkRange("limit-replay-bytes", int64(c.ReplayBytes), 0, 1<<32),
		checkRange("limit-streams", int64(c.StreamsPerSession), 1, 1<<20),
		checkRange("limit-calls", int64(c.CallsPerSession), 1, 1<<14),
		checkRange("limit-starts", int64(c.ConcurrentStarts), 1, 1<<20),
		checkLeast("idle-timeout", c.IdleTimeout, time.Second),
		checkLeast("max-lifetime", c.MaxLifetime, time.Second),
		checkLeast("call-timeout", c.CallTimeout, time.Second),
		checkLeast("answer-timeout", c.ParkTimeout, time.Second),
		checkLeast("start-timeout", c.StartTimeout, time.Second),
		checkLeast("drain-timeout", c.DrainTimeout, 0),
		checkLeast("settle-time", c.SettleTime, 0),
		c.checkFits(option.BodyBytes, c.BodyBytes),
		c.checkFits(option.LineBytes, int64(c.LineBytes)),
		c.Origins.Validate(),
	)
}

func checkRange(name string, value, least, most int64) error {
	if value < least || value > most {
		return fmt.Errorf("%s is %d, want %d to %d", name, value, least, most)
	}
	return nil
}

func checkLeast(name string, value, least time.Duration) error {
	if value < least {
		return fmt.Errorf("%s is %s, want at least %s", name, value, least)
	}
	return nil
}

// checkFits returns an error if the largest message that an option allows does not fit into
// the memory budget. The API server refuses an MCPServer for the same reason: see the rules
// of v1alpha1.Adapter.
func (c *Config) checkFits(o option.Option, bytes int64) error {
	if budget.Holds(c.Budget(), bytes) {
		return nil
	}
	name, memory := c.nameInError(o), c.nameInError(option.MemoryLimit)
	return fmt.Errorf("%s is %d, and with %s %d all messages together may have %d bytes: raise %s to %d, or lower %s",
		name, bytes, memory, c.MemoryLimit, c.Budget(), memory, budget.LimitFor(bytes), name)
}

// nameInError is the user's name of the option. Errors about flags name them without dashes.
func (c *Config) nameInError(o option.Option) string { return strings.TrimPrefix(c.Names.Of(o), "--") }

// Budget is how many bytes of messages the adapter may hold at a time.
func (c *Config) Budget() int64 {
	return budget.BytesFor(c.MemoryLimit, max(c.BodyBytes, int64(c.LineBytes)))
}

// connectionBytes is more than an open connection costs whose client sends nothing.
const connectionBytes = 64 << 10

// mostConnections bounds what the listener looks through at its limit, to evict one.
const mostConnections = 8192

// Connections is how many connections of clients may be open: enough for the sessions, and
// as many as would fit into the budget, although the budget does not count them.
func (c *Config) Connections() int {
	return max(min(int(c.Budget()/connectionBytes), mostConnections), 4*c.MaxSessions)
}

// Translates says whether clients of 2026-07-28 can use a server that has sessions only.
// Where all sessions share a process, there is nothing to keep apart.
func (c *Config) Translates() bool { return c.Shared || c.StatelessClients == Translate }

// Transport is the transport that the server speaks.
type Transport uint8

// The transports.
const (
	Stdio Transport = iota
	StreamableHTTP
	SSE
)

// StatelessClients says how the adapter treats clients of revision 2026-07-28 of a server
// that has sessions only.
type StatelessClients uint8

const (
	// Native refuses them, with the error after which clients of both eras open a session.
	Native StatelessClients = iota
	// Translate serves them, with one process for all clients that have the same token, or
	// that have the same address and no token.
	Translate
)

func (s StatelessClients) String() string { return [...]string{"Native", "Translate"}[s] }

// Set makes a StatelessClients a flag.
func (s *StatelessClients) Set(text string) error {
	for _, known := range []StatelessClients{Native, Translate} {
		if known.String() == text {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("want Native or Translate, not %q", text)
}

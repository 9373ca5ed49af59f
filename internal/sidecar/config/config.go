// Package config says how an adapter behaves: what users can set and by which flags, the defaults,
// and which values make sense together.
package config

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/audit"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/sse"
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

	// Owner is this instance, where others reach it.
	Owner sessionid.Owner
	// Peers says that there may be others, which have the same keys.
	Peers bool
	// DialPeer connects to one of these; nil is TCP.
	DialPeer func(ctx context.Context, address netip.AddrPort) (net.Conn, error)
	// PeerStreams is how many streams this instance passes on to one of these at a time; 0 is as many as its sessions need.
	PeerStreams int
	Keys        *keys.Keys
	// Settings are the values that change while the adapter runs. Nil stands for Origins,
	// which never change.
	Settings *settings.Live
	// Access says who may call what. Nil allows everything to everyone.
	Access *access.Gate
	// Audit takes the lines that the access document asks for; may be nil.
	Audit *audit.Log
	Log   logr.Logger

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

// amounts are the options that are numbers and durations.
func (c *Config) amounts() []amount {
	return []amount{
		number[int]{option.MaxSessions, &c.MaxSessions, 1, 1 << 20, "sessions at a time, and as many processes for clients of 2026-07-28 that are translated, or whose token the adapter has verified; when all are open, a new client waits for an idle one to end"},
		number[int64]{option.MemoryLimit, &c.MemoryLimit, 0, 1 << 40, "`bytes` that the container may use; half of them are for messages; without a limit these have 128 MiB, or twice the larger of limit-body-bytes and limit-line-bytes, whichever is more; a request without room is answered 503"},
		number[int]{option.Warm, &c.Warm, 0, 1 << 20, "spare server processes, started in advance for new sessions"},
		number[int64]{option.BodyBytes, &c.BodyBytes, 1 << 10, 1 << 32, "largest request body; a larger one is answered 413"},
		number[int]{option.LineBytes, &c.LineBytes, 1 << 10, 1 << 32, "largest message of the server; a larger one ends its process"},
		number[int]{option.ReplayBytes, &c.ReplayBytes, 0, 1 << 32, "sent events kept for a session's clients that come back; 0 keeps none"},
		number[int]{option.Streams, &c.StreamsPerSession, 1, 1 << 20, "event streams open at a time in one session"},
		number[int]{option.Calls, &c.CallsPerSession, 1, 1 << 14, "calls in flight at a time in one session; further ones are answered 503"},
		number[int]{option.Starts, &c.ConcurrentStarts, 1, 1 << 20, "server processes starting at a time; further ones wait"},
		duration{option.IdleTimeout, &c.IdleTimeout, time.Second, "after which an unused session ends, and an unused process of clients without sessions"},
		duration{option.MaxLifetime, &c.MaxLifetime, time.Second, "after which a session ends in any case"},
		duration{option.CallTimeout, &c.CallTimeout, time.Second, "longest that one call may take, progress or not"},
		duration{option.AnswerTimeout, &c.ParkTimeout, time.Second, "how long a call waits for a client of 2026-07-28 to answer a question of its server; then the server is told that the user cancelled"},
		duration{option.StartTimeout, &c.StartTimeout, time.Second, "for a server process to start and answer initialize; until then it is starting, and not broken"},
		duration{option.DrainTimeout, &c.DrainTimeout, 0, "for calls in flight to finish when the adapter is told to end, and with --peer-listen for sessions to live on in a drain that a hook begins"},
		// No field sets it, so it has no row among the options.
		duration{option.Option{Flag: "--settle-time"}, &c.SettleTime, 0, "how long a drain that a hook begins, as in a pod that goes away, waits and serves everything, until others know; a signal does not wait"},
	}
}

// BindFlags has the flags of adapter serve set the configuration.
func (c *Config) BindFlags(flags *flag.FlagSet) {
	for _, amount := range c.amounts() {
		amount.bind(flags)
	}
	flags.Var(choice[Transport]{&c.Transport, transportNames}, option.Transport.Name(), "`transport` that the server speaks: stdio, streamable-http or sse")
	flags.Var(choice[bool]{&c.Shared, map[bool]string{false: "PerSession", true: "Shared"}}, option.Isolation.Name(), "which `processes` serve sessions of a stdio server: PerSession or Shared")
	flags.Var(choice[rpc.Framing]{&c.Framing, map[rpc.Framing]string{rpc.Newline: "Newline", rpc.ContentLength: "ContentLength"}}, option.Framing.Name(), "`framing` of a stdio server's messages: Newline or ContentLength")
	flags.Var(&c.Era, option.Sessions.Name(), "which `kind` of revision a stdio or streamable-http server speaks: Stateful, those with sessions; Stateless, 2026-07-28; Auto finds out")
	flags.Var(&c.StatelessClients, option.StatelessClients.Name(), "what clients of 2026-07-28 get from a server that has sessions only: `Native` refuses them, so that those that can open a session; Translate serves them, one process for all with the same token, or the same address")
	flags.BoolVar(&c.OfferRoots, option.OfferRoots.Name(), c.OfferRoots, "let servers that have sessions ask clients of 2026-07-28 for their roots, which are deprecated there")
	flags.BoolVar(&c.LegacySSE, option.LegacySSE.Name(), c.LegacySSE, "also serve clients that know only the transport of revision 2024-11-05, at "+sse.StreamPath+" and "+sse.MessagesPath)
	flags.Func(option.AllowedOrigins.Name(), "web `origin` that may call, besides loopback ones; * allows all; may be repeated", appendTo(&c.Origins.Origins))
	flags.Func(option.AllowedHosts.Name(), "host `name` that clients may use, besides addresses and localhost; * allows all; may be repeated", appendTo(&c.Origins.Hosts))
}

// Validate returns an error that names all values that make no sense.
func (c *Config) Validate() error {
	var errs []error
	for _, amount := range c.amounts() {
		errs = append(errs, amount.check())
	}
	return errors.Join(append(errs,
		c.checkFits(option.BodyBytes, c.BodyBytes),
		c.checkFits(option.LineBytes, int64(c.LineBytes)),
		c.Origins.Validate())...)
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

var transportNames = map[Transport]string{Stdio: "stdio", StreamableHTTP: "streamable-http", SSE: "sse"}

func (t Transport) String() string { return transportNames[t] }

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

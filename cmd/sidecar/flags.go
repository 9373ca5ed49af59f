package main

import (
	"flag"
	"strings"

	"github.com/slipway-mcp/slipway/internal/sidecar"
)

func bindOptions(flags *flag.FlagSet, o *options) {
	flags.StringVar(&o.listen, "listen", "127.0.0.1:16270", "`address` for MCP clients, at "+sidecar.Path+"; port 0 picks a free one")
	flags.StringVar(&o.adminListen, "admin-listen", "127.0.0.1:16271", "`address` for health checks, metrics and the catalogue; port 0 picks a free one")
	flags.StringVar(&o.socket, "socket", "", "`path` of the socket that the launcher in the server's container connects to")
	flags.StringVar(&o.framing, "framing", "Newline", "how the server tells messages apart: Newline or ContentLength")
	flags.StringVar(&o.keyFile, "key-file", "", "`file` with the server's key, 32 bytes in hexadecimal; without it a key is made up, and the catalogue is not served")
	flags.StringVar(&o.podUID, "pod-uid", "", "UID of this pod, for session ids")
	flags.StringVar(&o.podIP, "pod-ip", "", "address of this pod, for session ids")
	flags.IntVar(&o.verbosity, "verbosity", 0, "how much is logged, from 0 to 5")
}

func bindConfig(flags *flag.FlagSet, c *sidecar.Config) {
	flags.IntVar(&c.MaxSessions, "max-sessions", c.MaxSessions, "sessions at a time; further ones are answered 503")
	flags.DurationVar(&c.IdleTimeout, "idle-timeout", c.IdleTimeout, "after which a session that nobody uses ends")
	flags.DurationVar(&c.MaxLifetime, "max-lifetime", c.MaxLifetime, "after which a session ends in any case")
	flags.DurationVar(&c.CallTimeout, "call-timeout", c.CallTimeout, "longest that one call may take, progress or not")
	flags.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout, "for calls in flight to finish when the sidecar is told to end")
	flags.DurationVar(&c.OpenTimeout, "open-timeout", c.OpenTimeout, "for the server to start and answer initialize")
	flags.IntVar(&c.Warm, "warm", c.Warm, "server processes kept started for sessions to come")
	flags.Int64Var(&c.BodyBytes, "limit-body-bytes", c.BodyBytes, "largest request body; a larger one is answered 413")
	flags.IntVar(&c.LineBytes, "limit-line-bytes", c.LineBytes, "largest message of the server; a larger one ends its process")
	flags.IntVar(&c.ReplayBytes, "limit-replay-bytes", c.ReplayBytes, "sent events kept for a session's clients that come back; 0 keeps none")
	flags.IntVar(&c.StreamsPerSession, "limit-streams", c.StreamsPerSession, "event streams open at a time in one session")
	flags.IntVar(&c.CallsPerSession, "limit-calls", c.CallsPerSession, "calls in flight at a time in one session; further ones are answered 503")
	flags.IntVar(&c.ConcurrentStarts, "limit-starts", c.ConcurrentStarts, "server processes starting at a time; further ones wait")
	flags.Var(list{&c.Origins.Origins}, "allowed-origin", "web `origin` that may call, besides loopback ones; * allows all; may be repeated")
	flags.Var(list{&c.Origins.Hosts}, "allowed-host", "host `name` that clients may use, besides addresses and localhost; * allows all; may be repeated")
}

// list is a flag that may be given several times.
type list struct{ values *[]string }

func (l list) String() string { return "" }

func (l list) Set(value string) error {
	*l.values = append(*l.values, strings.Split(value, ",")...)
	return nil
}

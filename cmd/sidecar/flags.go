package main

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/sse"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
)

func bindOptions(flags *flag.FlagSet, o *options) {
	flags.StringVar(&o.listen, "listen", "127.0.0.1:16270", "`address` for MCP clients, at "+sidecar.Path+"; port 0 picks a free one")
	flags.StringVar(&o.adminListen, "admin-listen", "127.0.0.1:16271", "`address` for health checks, metrics and the catalog; port 0 picks a free one")
	flags.StringVar(&o.socket, "socket", "", "`path` of the socket that the launcher in the server's container connects to")
	flags.Func("server-uid", "user `number` that the server's container runs as: the adapter accepts no other user on the socket; may be repeated; without it every user that reaches the socket may use it", o.addServerUIDs)
	flags.StringVar(&o.upstream, "upstream", "", "`URL` of a server that speaks streamable-http or sse, such as http://127.0.0.1:3000/mcp")
	flags.StringVar(&o.keysDir, "keys-dir", "", "`directory` with the server's keys, in hexadecimal: the file current has one, accepted any number, one a line; the adapter reads them again when they change; without it the adapter makes a key, and does not serve the catalog")
	flags.StringVar(&o.settingsDir, "settings-dir", "", "`directory` with the file "+adapterapi.SettingsFile+", whose allowed hosts and origins and verbosity replace those of the flags; the adapter reads it again when it changes, and with --keys-dir the manager can send another")
	flags.StringVar(&o.podUID, "pod-uid", "", "UID of this pod, for session ids")
	flags.StringVar(&o.podIP, "pod-ip", "", "address of this pod, for session ids")
	flags.IntVar(&o.verbosity, "verbosity", 0, "how much is logged, from 0 to 5: 1 adds sessions that end, failures that repeat themselves and all that servers write to their output and is no message; more than 1 adds nothing yet")
}

var transports = map[config.Transport]string{config.Stdio: "stdio", config.StreamableHTTP: "streamable-http", config.SSE: "sse"}

func bindConfig(flags *flag.FlagSet, c *config.Config) {
	flags.Var(choice[config.Transport]{&c.Transport, transports}, "transport", "`transport` that the server speaks: stdio, streamable-http or sse")
	flags.Var(choice[bool]{&c.Shared, map[bool]string{false: "PerSession", true: "Shared"}}, "isolation", "which `processes` serve sessions of a stdio server: PerSession or Shared")
	flags.Var(choice[rpc.Framing]{&c.Framing, map[rpc.Framing]string{rpc.Newline: "Newline", rpc.ContentLength: "ContentLength"}}, "framing", "`framing` of a stdio server's messages: Newline or ContentLength")
	flags.IntVar(&c.MaxSessions, "max-sessions", c.MaxSessions, "sessions at a time, and as many processes with sessions for clients of 2026-07-28; when all are open, a new client waits for an idle one to end")
	flags.DurationVar(&c.IdleTimeout, "idle-timeout", c.IdleTimeout, "after which an unused session ends, and an unused process of clients without sessions")
	flags.DurationVar(&c.MaxLifetime, "max-lifetime", c.MaxLifetime, "after which a session ends in any case")
	flags.DurationVar(&c.CallTimeout, "call-timeout", c.CallTimeout, "longest that one call may take, progress or not")
	flags.DurationVar(&c.ParkTimeout, "answer-timeout", c.ParkTimeout, "how long a call waits for a client of 2026-07-28 to answer a question of its server; then the server is told that the user cancelled")
	flags.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout, "for calls in flight to finish when the adapter is told to end")
	flags.DurationVar(&c.SettleTime, "settle-time", c.SettleTime, "how long a drain that a hook begins, as in a pod that goes away, waits and serves everything, until others know; a signal does not wait")
	flags.DurationVar(&c.StartTimeout, "start-timeout", c.StartTimeout, "for a server process to start and answer initialize; until then it is starting, and not broken")
	flags.IntVar(&c.Warm, "warm", c.Warm, "spare server processes, started in advance for new sessions")
	flags.Int64Var(&c.MemoryLimit, "memory-limit", c.MemoryLimit, "`bytes` that the container may use; half of them are for messages; without a limit these have 128 MiB, or twice the larger of limit-body-bytes and limit-line-bytes, whichever is more; a request without room is answered 503")
	flags.Int64Var(&c.BodyBytes, "limit-body-bytes", c.BodyBytes, "largest request body; a larger one is answered 413")
	flags.IntVar(&c.LineBytes, "limit-line-bytes", c.LineBytes, "largest message of the server; a larger one ends its process")
	flags.IntVar(&c.ReplayBytes, "limit-replay-bytes", c.ReplayBytes, "sent events kept for a session's clients that come back; 0 keeps none")
	flags.IntVar(&c.StreamsPerSession, "limit-streams", c.StreamsPerSession, "event streams open at a time in one session")
	flags.IntVar(&c.CallsPerSession, "limit-calls", c.CallsPerSession, "calls in flight at a time in one session; further ones are answered 503")
	flags.IntVar(&c.ConcurrentStarts, "limit-starts", c.ConcurrentStarts, "server processes starting at a time; further ones wait")
	flags.Var(&c.Era, "sessions", "which `kind` of revision a stdio or streamable-http server speaks: Stateful, those with sessions; Stateless, 2026-07-28; Auto finds out")
	flags.Var(&c.StatelessClients, "stateless-clients", "what clients of 2026-07-28 get from a server that has sessions only: `Native` refuses them, so that those that can open a session; Translate serves them, one process for all with the same token, or the same address")
	flags.BoolVar(&c.OfferRoots, "offer-roots", c.OfferRoots, "let servers that have sessions ask clients of 2026-07-28 for their roots, which are deprecated there")
	flags.BoolVar(&c.LegacySSE, "legacy-sse", c.LegacySSE, "also serve clients that know only the transport of revision 2024-11-05, at "+sse.StreamPath+" and "+sse.MessagesPath)
	flags.Func("allowed-origin", "web `origin` that may call, besides loopback ones; * allows all; may be repeated", appendTo(&c.Origins.Origins))
	flags.Func("allowed-host", "host `name` that clients may use, besides addresses and localhost; * allows all; may be repeated", appendTo(&c.Origins.Hosts))
}

// choice is a flag that takes one of several names.
type choice[T comparable] struct {
	value *T
	names map[T]string
}

func (c choice[T]) String() string { return c.names[*c.value] }

func (c choice[T]) Set(text string) error {
	for value, name := range c.names {
		if name == text {
			*c.value = value
			return nil
		}
	}
	return errors.New("want " + strings.Join(slices.Sorted(maps.Values(c.names)), " or "))
}

// appendTo returns the function of a flag that users may repeat.
func appendTo(values *[]string) func(string) error {
	return func(text string) error {
		*values = append(*values, strings.Split(text, ",")...)
		return nil
	}
}

func (o *options) addServerUIDs(list string) error {
	for text := range strings.SplitSeq(list, ",") {
		uid, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return fmt.Errorf("want the number of a user, such as 1000, not %q", text)
		}
		o.serverUIDs = append(o.serverUIDs, uint32(uid))
	}
	return nil
}

// checkServer refuses flags for the server that contradict each other, and sets its URL.
func checkServer(c *config.Config, o options) error {
	switch isStdio := c.Transport == config.Stdio; {
	case o.serverUIDs != nil && o.socket == "":
		return errors.New("server-uid says who may use the socket: give --socket, too")
	case !isStdio:
		return checkHTTP(c, o)
	case o.upstream != "":
		return errors.New("upstream is for servers that speak HTTP: add --transport streamable-http or --transport sse")
	case (len(o.command) == 0) == (o.socket == ""):
		return errors.New("name the server's command behind --, as in: adapter serve -- node server.js; or give --socket in a pod")
	}
	return nil
}

// checkHTTP sets the URL of a server that speaks HTTP, and refuses flags that have no meaning for it.
func checkHTTP(c *config.Config, o options) (err error) {
	transport := transports[c.Transport]
	c.UpstreamURL, err = url.Parse(o.upstream)
	if err != nil || c.UpstreamURL.Scheme != "http" || c.UpstreamURL.Host == "" || len(o.command) > 0 {
		return fmt.Errorf("transport %s: give the server's whole URL with --upstream, such as http://127.0.0.1:3000/mcp, and no command", transport)
	}
	if c.Framing != rpc.Newline || c.Shared {
		return fmt.Errorf("transport %s: framing and isolation are for stdio servers", transport)
	}
	if c.Transport == config.SSE && c.Era == sessionless.Modern {
		return errors.New("transport sse: sessions must not be Stateless: that transport has sessions")
	}
	return nil
}

// complete sets the configuration that depends on several flags.
func complete(c *config.Config, o *options) (err error) {
	c.Names.Fields = o.settingsDir != "" // the manager has written that file for an MCPServer
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Log, o.level, err = newLogger(o.verbosity); err != nil {
		return err
	}
	if o.keysDir == "" {
		c.Keys, err = keys.Generate()
	} else {
		c.Keys, err = keys.Load(o.keysDir, o.podUID)
	}
	if err != nil {
		return err
	}
	if o.podUID != "" {
		uid, err := hex.DecodeString(strings.ReplaceAll(o.podUID, "-", ""))
		if err != nil || len(uid) != len(c.Owner.UID) {
			return fmt.Errorf("pod-uid %q is not a UID", o.podUID)
		}
		c.Owner.UID = [16]byte(uid)
	}
	return nil
}

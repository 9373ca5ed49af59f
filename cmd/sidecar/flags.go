package main

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

func bindOptions(flags *flag.FlagSet, o *options) {
	flags.StringVar(&o.listen, "listen", "127.0.0.1:16270", "`address` for MCP clients, at "+sidecar.Path+"; port 0 picks a free one")
	flags.StringVar(&o.adminListen, "admin-listen", "127.0.0.1:16271", "`address` for health checks, metrics and the catalog; port 0 picks a free one")
	flags.StringVar(&o.peerListen, "peer-listen", "", "`address` for other pods of the same server, which pass requests of this pod's sessions on; needs --keys-dir, --pod-uid and --pod-ip; without it this pod passes on nothing either")
	flags.StringVar(&o.socket, "socket", "", "`path` of the socket that the launcher in the server's container connects to")
	flags.Func("server-uid", "user `number` that the server's container runs as: the adapter accepts no other user on the socket; may be repeated; without it every user that reaches the socket may use it", o.addServerUIDs)
	flags.StringVar(&o.upstream, "upstream", "", "`URL` of a server that speaks streamable-http or sse, such as http://127.0.0.1:3000/mcp")
	flags.StringVar(&o.keysDir, "keys-dir", "", "`directory` with the server's keys, in hexadecimal: the file current has one, accepted any number, one a line; the adapter reads them again when they change; without it the adapter makes a key, and does not serve the catalog")
	flags.StringVar(&o.settingsDir, "settings-dir", "", "`directory` with the file "+adapterapi.SettingsFile+", whose allowed hosts and origins and verbosity replace those of the flags; the adapter reads it again when it changes, and with --keys-dir the manager can send another; with --keys-dir the directory must also have the file "+adapterapi.AccessFile+", signed by the manager, which authorizes callers")
	flags.StringVar(&o.accessFile, "access-file", "", "`file` with an access document in JSON, without a signature, which authorizes callers; for an adapter without a manager; the adapter reads it again when it changes; without it every caller can call everything")
	flags.StringVar(&o.podUID, "pod-uid", "", "UID of this pod, for session ids")
	flags.StringVar(&o.podIP, "pod-ip", "", "address of this pod, for session ids")
	flags.IntVar(&o.verbosity, "verbosity", 0, "how much is logged, from 0 to 5: 1 adds ended sessions, repeated failures, and output of servers that is not MCP; more than 1 adds nothing yet")
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
		return errors.New("server-uid restricts who can use the socket: set --socket, too")
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
	c.UpstreamURL, err = url.Parse(o.upstream)
	if err != nil || c.UpstreamURL.Scheme != "http" || c.UpstreamURL.Host == "" || len(o.command) > 0 {
		return fmt.Errorf("transport %s: give the server's whole URL with --upstream, such as http://127.0.0.1:3000/mcp, and no command", c.Transport)
	}
	if c.Framing != rpc.Newline || c.Shared {
		return fmt.Errorf("transport %s: framing and isolation are for stdio servers", c.Transport)
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
		if c.Owner.UID, err = sessionid.ParseUID(o.podUID); err != nil {
			return fmt.Errorf("pod-uid: %w", err)
		}
	}
	if c.Peers = o.peerListen != ""; c.Peers && (o.keysDir == "" || o.podUID == "" || o.podIP == "") {
		return errors.New("peer-listen needs --keys-dir, --pod-uid and --pod-ip: other pods know this one by them")
	}
	return nil
}

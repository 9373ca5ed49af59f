package tomodern

import (
	"errors"
	"fmt"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// offer is a process's answer to initialize.
type offer struct {
	discovery []byte // the result of server/discover
	meta      []byte // the member _meta that names the server; nil if the server does not name itself

	logging   bool
	tasks     bool             // tools can be called as tasks
	changes   subscription.Set // lists whose changes the process announces
	subscribe bool
}

// errRefused says that a server does not let a caller in. Other callers need not back off.
var errRefused = errors.New("the server refused initialize")

// readOffer checks the answer to initialize. Any revision with sessions will do: they do not
// differ in what the adapter translates.
func readOffer(answer session.Message, serves func(spoken string) []string) (offer, error) {
	text, e := answer.Bytes, &answer.Envelope
	if e.Error.Present() {
		const most = 500
		return offer{}, fmt.Errorf("%w: %s", errRefused, rpc.ClipTo(e.Error.Of(text), most))
	}
	found, err := rpc.Find(text, e.Result, "protocolVersion", "capabilities", "serverInfo", "instructions")
	if err != nil {
		return offer{}, fmt.Errorf("read the server's answer to initialize: %w", err)
	}
	revision := string(rpc.Text(text, found[0]))
	if !front.IsServed(revision) {
		return offer{}, fmt.Errorf("the server answered initialize with a protocol revision that is not served: %q", rpc.Clip(revision))
	}
	var o offer
	if found[2].IsObject(text) {
		o.meta = []byte(`"_meta":{"` + rpc.MetaServerInfo + `":` + string(found[2].Of(text)) + `}`)
	}
	capabilities, err := o.readCapabilities(found[1].Of(text))
	if err != nil {
		return offer{}, fmt.Errorf("read the server's capabilities: %w", err)
	}
	o.discovery = o.discover(serves(revision), capabilities, rpc.Text(text, found[3]))
	return o, nil
}

var errNoCapabilities = errors.New("not an object")

// readCapabilities reads the server's capabilities, and returns those that clients are told.
func (o *offer) readCapabilities(text []byte) (told []byte, err error) {
	all := rpc.Whole(text)
	if !all.IsObject(text) {
		return nil, errNoCapabilities
	}
	at := func(path ...string) rpc.Span {
		inside := all
		for _, name := range path {
			inside = rpc.Lookup(text, inside, name)
		}
		return inside
	}
	// A member of another type than it should be counts as absent.
	o.logging, o.tasks = at("logging").IsObject(text), at("tasks", "requests", "tools", "call").IsObject(text)
	o.changes, o.subscribe = subscription.Announced(text, all), string(at("resources", "subscribe").Of(text)) == "true"
	var edits rpc.Edits
	_, err = edits.Take(text, all, "tasks")
	return edits.Edited(text), err
}

// discover is the result of server/discover.
func (o *offer) discover(versions []string, capabilities, instructions []byte) []byte {
	members := []string{
		string(memberComplete),
		`"supportedVersions":["` + strings.Join(versions, `","`) + `"]`,
		`"capabilities":` + string(capabilities),
	}
	if len(instructions) > 0 {
		members = append(members, `"instructions":`+string(rpc.AppendString(nil, string(instructions))))
	}
	members = append(members, string(memberTTL), string(memberScope))
	if o.meta != nil {
		members = append(members, string(o.meta))
	}
	return []byte(rpc.Object(members...))
}

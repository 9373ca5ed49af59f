package tomodern

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// hello is a process's answer to initialize.
type hello struct {
	discovery  []byte // the result of server/discover
	serverInfo []byte // may be absent

	logging   bool
	tasks     bool             // tools can be called as tasks
	changes   subscription.Set // lists that the process tells changes of
	subscribe bool
}

// errRefused says that a server does not let a caller in, which others need not wait for.
var errRefused = errors.New("the server refused initialize")

// readHello checks the answer to initialize. Any revision with sessions will do: they
// differ in nothing that is translated here.
func readHello(answer session.Message, serves func(spoken string) []string) (hello, error) {
	text, e := answer.Bytes, &answer.Envelope
	if e.Error.Present() {
		const most = 500
		return hello{}, fmt.Errorf("%w: %s", errRefused, rpc.ClipTo(e.Error.Of(text), most))
	}
	found, err := rpc.Find(text, e.Result, "protocolVersion", "capabilities", "serverInfo", "instructions")
	if err != nil {
		return hello{}, fmt.Errorf("read the server's answer to initialize: %w", err)
	}
	revision := string(rpc.Text(text, found[0]))
	if !front.IsServed(revision) {
		return hello{}, fmt.Errorf("the server answered initialize with a protocol revision that is not served: %q", rpc.Clip(revision))
	}
	var h hello
	if found[2].IsObject(text) {
		h.serverInfo = bytes.Clone(found[2].Of(text))
	}
	capabilities := found[1].Of(text)
	if err := h.readCapabilities(capabilities); err != nil {
		return hello{}, fmt.Errorf("read the server's capabilities: %w", err)
	}
	var edits rpc.Edits
	if _, err := edits.Take(capabilities, rpc.Whole(capabilities), "tasks"); err != nil {
		return hello{}, fmt.Errorf("read the server's capabilities: %w", err)
	}
	h.discovery = h.discover(serves(revision), edits.Edited(capabilities), rpc.Text(text, found[3]))
	return h, nil
}

var errNoCapabilities = errors.New("not an object")

func (h *hello) readCapabilities(text []byte) error {
	if !rpc.Whole(text).IsObject(text) {
		return errNoCapabilities
	}
	type list struct {
		ListChanged bool `json:"listChanged"`
		Subscribe   bool `json:"subscribe"`
	}
	var read struct {
		Logging   *struct{} `json:"logging"`
		Tools     list      `json:"tools"`
		Prompts   list      `json:"prompts"`
		Resources list      `json:"resources"`
		Tasks     struct {
			Requests struct {
				Tools struct {
					Call *struct{} `json:"call"`
				} `json:"tools"`
			} `json:"requests"`
		} `json:"tasks"`
	}
	// What is of another type than it should be counts as absent.
	if err := json.Unmarshal(text, &read); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
			return err
		}
	}
	h.logging, h.tasks = read.Logging != nil, read.Tasks.Requests.Tools.Call != nil
	h.changes = subscription.Set{read.Tools.ListChanged, read.Prompts.ListChanged, read.Resources.ListChanged}
	h.subscribe = read.Resources.Subscribe
	return nil
}

// discover is what clients without sessions are told of the server instead.
func (h *hello) discover(versions []string, capabilities, instructions []byte) []byte {
	members := []string{
		`"resultType":"complete"`,
		`"supportedVersions":["` + strings.Join(versions, `","`) + `"]`,
		`"capabilities":` + string(capabilities),
	}
	if len(instructions) > 0 {
		members = append(members, `"instructions":`+string(rpc.AppendString(nil, string(instructions))))
	}
	members = append(members, `"ttlMs":0,"cacheScope":"private"`)
	if h.serverInfo != nil {
		members = append(members, `"_meta":{"`+rpc.MetaServerInfo+`":`+string(h.serverInfo)+`}`)
	}
	return []byte(rpc.Object(members...))
}

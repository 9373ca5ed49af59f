package tolegacy

import (
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// tasksExtension names tasks in the modern revision. A server whose client declares it answers
// in a way that older clients cannot read (U-15).
const tasksExtension = "io.modelcontextprotocol/tasks"

// abilities are the kinds of input that the client can give.
type abilities struct{ form, url, sampling, roots bool }

// readAbilities reads the capabilities that a client declares. It returns the capabilities
// for the modern server: no more than the client's revision has, and none that the adapter
// does not translate.
func readAbilities(declared []byte, revision string) (told []byte, can abilities) {
	if !rpc.Whole(declared).IsObject(declared) {
		return []byte(`{}`), can
	}
	var edits rpc.Edits
	edits.Filter(declared, rpc.Whole(declared), func(m rpc.Member) bool {
		return keepAbility(declared, m, revision, &edits, &can)
	})
	return edits.Edited(declared), can
}

func keepAbility(declared []byte, m rpc.Member, revision string, edits *rpc.Edits, can *abilities) bool {
	object := m.Value.IsObject(declared)
	switch string(m.Name) {
	case "tasks":
		return false
	case "elicitation":
		return object && keepElicitation(declared, m.Value, revision, edits, can)
	case "sampling":
		can.sampling = can.sampling || object
		return object
	case "roots":
		can.roots = can.roots || object
		dropMember(declared, m.Value, "listChanged", edits)
		return object
	case "extensions":
		dropMember(declared, m.Value, tasksExtension, edits)
		return object
	}
	return true
}

func keepElicitation(declared []byte, at rpc.Span, revision string, edits *rpc.Edits, can *abilities) bool {
	switch revision {
	case front.Revision20241105, front.Revision20250326:
		return false
	case front.Revision20250618:
		can.form = true
		edits.Replace(at, []byte(`{"form":{}}`))
	default:
		can.url = rpc.Lookup(declared, at, "url").Present()
		can.form = !can.url || rpc.Lookup(declared, at, "form").Present() // neither is form
	}
	return true
}

// dropMember drops the members with a name from an object.
func dropMember(text []byte, object rpc.Span, name string, edits *rpc.Edits) {
	edits.Filter(text, object, func(m rpc.Member) bool { return string(m.Name) != name })
}

// readOffer reads the capabilities of the modern server. It returns those that the client is
// told, and the lists whose changes the server announces.
func readOffer(offered []byte) (told []byte, lists subscription.Set) {
	if !rpc.Whole(offered).IsObject(offered) {
		return []byte(`{}`), lists
	}
	var edits rpc.Edits
	edits.Filter(offered, rpc.Whole(offered), func(m rpc.Member) bool {
		if string(m.Name) == "extensions" {
			dropMember(offered, m.Value, tasksExtension, &edits)
		}
		return string(m.Name) != "tasks"
	})
	return edits.Edited(offered), subscription.Announced(offered, rpc.Whole(offered))
}

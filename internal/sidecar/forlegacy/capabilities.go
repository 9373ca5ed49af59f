package forlegacy

import (
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
)

// tasksExtension is what became of tasks in the modern revision. A server that believes
// the client to have it answers in a way that older clients cannot read (U-15).
const tasksExtension = "io.modelcontextprotocol/tasks"

// abilities are what the client can be asked for.
type abilities struct{ form, url, sampling, roots bool }

// readAbilities reads the capabilities that a client declares. It returns what the modern
// server is told of them: no more than there is in the revision of the client, and
// nothing that is translated for nobody.
func readAbilities(declared []byte, revision string) (told []byte, can abilities) {
	if len(declared) == 0 || declared[0] != '{' {
		return []byte(`{}`), can
	}
	var changes edits
	thin := thinning{edits: &changes}
	for w := over(declared, rpc.Span{End: len(declared)}); ; {
		m, ok := w.next()
		if !ok {
			break
		}
		keepAbility(declared, m, revision, &thin, &can)
	}
	thin.close()
	return changes.of(declared), can
}

func keepAbility(declared []byte, m member, revision string, thin *thinning, can *abilities) {
	object := m.is(declared, '{')
	switch name := string(m.name); {
	case name == "tasks":
		thin.drop(m)
	case name == "elicitation":
		keepElicitation(declared, m, revision, thin, can)
	case name == "sampling" && object:
		can.sampling = true
		thin.keep(m)
	case name == "roots" && object:
		can.roots = true
		thin.keep(m)
		dropMember(declared, m.value, "listChanged", thin.edits)
	case name == "extensions" && object:
		thin.keep(m)
		dropMember(declared, m.value, tasksExtension, thin.edits)
	case name == "sampling", name == "roots", name == "extensions":
		thin.drop(m) // it must be an object
	default:
		thin.keep(m)
	}
}

func keepElicitation(declared []byte, m member, revision string, thin *thinning, can *abilities) {
	switch {
	case !m.is(declared, '{') || revision == frontend.Revision20241105 || revision == frontend.Revision20250326:
		thin.drop(m)
	case revision == frontend.Revision20250618:
		can.form = true
		thin.keep(m)
		thin.edits.replace(m.value, []byte(`{"form":{}}`))
	default:
		can.url = find(declared, m.value, "url").Present()
		can.form = !can.url || find(declared, m.value, "form").Present() // neither is form
		thin.keep(m)
	}
}

// dropMember drops the members with a name from an object.
func dropMember(text []byte, object rpc.Span, name string, changes *edits) {
	thin := thinning{edits: changes}
	for w := over(text, object); ; {
		m, ok := w.next()
		switch {
		case !ok:
			thin.close()
			return
		case string(m.name) == name:
			thin.drop(m)
		default:
			thin.keep(m)
		}
	}
}

// readOffer reads the capabilities of the modern server. It returns what the client is
// told of them, and which lists the server tells changes of.
func readOffer(offered []byte) (told []byte, lists [len(listKinds)]bool) {
	if len(offered) == 0 || offered[0] != '{' {
		return []byte(`{}`), lists
	}
	var changes edits
	thin := thinning{edits: &changes}
	for w := over(offered, rpc.Span{End: len(offered)}); ; {
		m, ok := w.next()
		if !ok {
			break
		}
		for i, kind := range listKinds {
			if string(m.name) == kind.capability {
				lists[i] = string(find(offered, m.value, "listChanged").Of(offered)) == "true"
			}
		}
		switch string(m.name) {
		case "tasks":
			thin.drop(m)
		case "extensions":
			thin.keep(m)
			dropMember(offered, m.value, tasksExtension, &changes)
		default:
			thin.keep(m)
		}
	}
	thin.close()
	return changes.of(offered), lists
}

package tolegacy

import (
	"slices"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// downlevel takes out of results what the client's revision does not have. A server that
// knew the client's revision would leave it out itself.
type downlevel struct {
	text     []byte
	method   []byte
	revision string // a date, so that revisions compare as texts
	edits    rpc.Edits
}

// keep keeps a member of a result, as far as the client can read it. It says whether
// anything is left of it.
func (d *downlevel) keep(m rpc.Member, result rpc.Span) bool {
	switch method, name := string(d.method), string(m.Name); {
	case method == rpc.MethodCallTool && name == "structuredContent":
		return d.keepStructured(m, result)
	case method == rpc.MethodCallTool && name == "content":
		d.content(m.Value, result)
	case method == "tools/list" && name == "tools":
		d.tools(m.Value)
	case method == rpc.MethodGetPrompt && name == "messages" && !d.hasAllContent():
		d.messages(m.Value)
	}
	return true
}

// structured says whether a value may be structured content in the client's revision:
// there is none in the first two, and objects only before the modern one.
func (d *downlevel) structured(at rpc.Span) bool {
	return d.revision >= front.Revision20250618 && at.IsObject(d.text)
}

// keepStructured drops structured content that the client cannot read. The result's own text
// stays. If there is none, the structured content becomes the text.
func (d *downlevel) keepStructured(m rpc.Member, result rpc.Span) bool {
	if d.structured(m.Value) {
		return true
	}
	if rpc.Lookup(d.text, result, "content").Present() {
		return false
	}
	d.edits.Replace(m.All(), slices.Concat([]byte(`"content":`), textOf(m.Value.Of(d.text))))
	return true
}

// textOf is a list of content whose only text is a JSON value.
func textOf(value []byte) []byte {
	text := rpc.AppendString([]byte(`[{"type":"text","text":`), string(value))
	return append(text, "}]"...)
}

func (d *downlevel) content(list, result rpc.Span) {
	empty := true
	for block := range rpc.Members(d.text, list) {
		empty = false
		if d.hasAllContent() {
			break
		}
		d.block(block.Value)
	}
	if at := rpc.Lookup(d.text, result, "structuredContent"); empty && at.Present() && !d.structured(at) {
		d.edits.Replace(list, textOf(at.Of(d.text)))
	}
}

// messages looks at the messages of a prompt, each of which has one block of content.
func (d *downlevel) messages(list rpc.Span) {
	for m := range rpc.Members(d.text, list) {
		d.block(rpc.Lookup(d.text, m.Value, "content"))
	}
}

// hasAllContent says whether the client's revision has all kinds of content.
func (d *downlevel) hasAllContent() bool { return d.revision >= front.Revision20250618 }

// block puts a text in the place of content of a kind that came later.
func (d *downlevel) block(at rpc.Span) {
	kind := string(rpc.Text(d.text, rpc.Lookup(d.text, at, "type")))
	var says string
	switch {
	case kind == "audio" && d.revision < front.Revision20250326:
		says = "[audio " + d.clipped(at, "mimeType") + ", which is not part of this client's protocol revision]"
	case kind == "resource_link":
		says = "[resource " + d.clipped(at, "name") + ": " + d.clipped(at, "uri") + "]"
	default:
		return
	}
	d.edits.Replace(at, append(rpc.AppendString([]byte(`{"type":"text","text":`), says), '}'))
}

// clipped is a text in an object, which may be of any length.
func (d *downlevel) clipped(object rpc.Span, name string) string {
	const most = 2 << 10
	return rpc.ClipTo(rpc.Text(d.text, rpc.Lookup(d.text, object, name)), most)
}

// tools drops output schemas that the client's revision does not have.
func (d *downlevel) tools(list rpc.Span) {
	for tool := range rpc.Members(d.text, list) {
		schema := rpc.Lookup(d.text, tool.Value, "outputSchema")
		if !schema.Present() || d.structured(schema) && string(rpc.Text(d.text, rpc.Lookup(d.text, schema, "type"))) == "object" {
			continue
		}
		dropMember(d.text, tool.Value, "outputSchema", &d.edits)
	}
}

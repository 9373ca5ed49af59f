package tolegacy

import (
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// downlevel takes out of results what the client's revision does not have. A server that
// knew of the client would have left it out itself.
type downlevel struct {
	text     []byte
	method   string
	revision string // these compare as texts
	edits    rpc.Edits
}

// keep keeps a member of a result, as far as the client can read it. It says whether
// anything is left of it.
func (d *downlevel) keep(m rpc.Member, result rpc.Span) bool {
	switch name := string(m.Name); {
	case d.method == "tools/call" && name == "structuredContent":
		return d.keepStructured(m, result)
	case d.method == "tools/call" && name == "content":
		d.content(m.Value, result)
	case d.method == "tools/list" && name == "tools":
		d.tools(m.Value)
	case d.method == "prompts/get" && name == "messages":
		d.messages(m.Value)
	}
	return true
}

// structured says whether a value may be structured content in the client's revision:
// there is none in the first two, and objects only before the modern one.
func (d *downlevel) structured(at rpc.Span) bool {
	return d.revision >= front.Revision20250618 && at.IsObject(d.text)
}

// keepStructured drops structured content that the client cannot read. The text that a
// result has besides stays; if there is none, it is the structured content's.
func (d *downlevel) keepStructured(m rpc.Member, result rpc.Span) bool {
	if d.structured(m.Value) {
		return true
	}
	if rpc.Lookup(d.text, result, "content").Present() {
		return false
	}
	d.edits.Replace(m.All(), surrounded(`"content":`, textOf(m.Value.Of(d.text)), ""))
	return true
}

// textOf is a list of content that has a JSON value as its only text.
func textOf(value []byte) []byte {
	text := rpc.AppendString([]byte(`[{"type":"text","text":`), string(value))
	return append(text, "}]"...)
}

func (d *downlevel) content(list, result rpc.Span) {
	none := true
	for block := range rpc.Members(d.text, list) {
		none = false
		if d.revision >= front.Revision20250618 {
			break // it has all kinds of content
		}
		d.block(block.Value)
	}
	if !none {
		return
	}
	if at := rpc.Lookup(d.text, result, "structuredContent"); at.Present() && !d.structured(at) {
		d.edits.Replace(list, textOf(at.Of(d.text)))
	}
}

// messages looks at the content of a prompt, which each message has one of.
func (d *downlevel) messages(list rpc.Span) {
	if d.revision >= front.Revision20250618 {
		return
	}
	for m := range rpc.Members(d.text, list) {
		d.block(rpc.Lookup(d.text, m.Value, "content"))
	}
}

// block puts a text in the place of content of a kind that came later.
func (d *downlevel) block(at rpc.Span) {
	kind := string(rpc.Text(d.text, rpc.Lookup(d.text, at, "type")))
	var says string
	switch {
	case kind == "audio" && d.revision < front.Revision20250326:
		says = "[audio " + d.clipped(at, "mimeType") + ", which is not part of this client's protocol revision]"
	case kind == "resource_link" && d.revision < front.Revision20250618:
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

// tools drops the schemas of output that the client's revision does not have.
func (d *downlevel) tools(list rpc.Span) {
	for tool := range rpc.Members(d.text, list) {
		schema := rpc.Lookup(d.text, tool.Value, "outputSchema")
		if !schema.Present() || d.structured(schema) && string(rpc.Text(d.text, rpc.Lookup(d.text, schema, "type"))) == "object" {
			continue
		}
		dropMember(d.text, tool.Value, "outputSchema", &d.edits)
	}
}

package forlegacy

import (
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
)

// downlevel takes out of results what the client's revision does not have. A server that
// knew of the client would have left it out itself.
type downlevel struct {
	text     []byte
	method   string
	revision string // these compare as texts
	changes  *edits
}

// keep keeps a member of a result, as far as the client can read it.
func (d *downlevel) keep(m member, result rpc.Span, thin *thinning) {
	switch name := string(m.name); {
	case d.method == "tools/call" && name == "structuredContent":
		d.keepStructured(m, result, thin)
	case d.method == "tools/call" && name == "content":
		thin.keep(m)
		d.content(m, result)
	case d.method == "tools/list" && name == "tools":
		thin.keep(m)
		d.tools(m.value)
	case d.method == "prompts/get" && name == "messages":
		thin.keep(m)
		d.messages(m.value)
	default:
		thin.keep(m)
	}
}

// structured says whether a value may be structured content in the client's revision:
// there is none in the first two, and objects only before the modern one.
func (d *downlevel) structured(at rpc.Span) bool {
	return d.revision >= frontend.Revision20250618 && d.text[at.Start] == '{'
}

// keepStructured drops structured content that the client cannot read. The text that a
// result has besides stays; if there is none, it is the structured content's.
func (d *downlevel) keepStructured(m member, result rpc.Span, thin *thinning) {
	if d.structured(m.value) {
		thin.keep(m)
		return
	}
	if find(d.text, result, "content").Present() {
		thin.drop(m)
		return
	}
	thin.keep(m)
	d.changes.replace(rpc.Span{Start: m.key.Start, End: m.value.End}, surrounded(`"content":`, textOf(m.value.Of(d.text)), ""))
}

// textOf is a list of content that has a JSON value as its only text.
func textOf(value []byte) []byte {
	text := rpc.AppendString([]byte(`[{"type":"text","text":`), string(value))
	return append(text, "}]"...)
}

func (d *downlevel) content(m member, result rpc.Span) {
	w := over(d.text, m.value)
	block, ok := w.next()
	if !ok {
		if at := find(d.text, result, "structuredContent"); at.Present() && !d.structured(at) {
			d.changes.replace(m.value, textOf(at.Of(d.text)))
		}
		return
	}
	if d.revision >= frontend.Revision20250618 {
		return // it has all kinds of content
	}
	for ; ok; block, ok = w.next() {
		d.block(block.value)
	}
}

// messages looks at the content of a prompt, which each message has one of.
func (d *downlevel) messages(list rpc.Span) {
	if d.revision >= frontend.Revision20250618 {
		return
	}
	for w := over(d.text, list); ; {
		m, ok := w.next()
		if !ok {
			return
		}
		d.block(find(d.text, m.value, "content"))
	}
}

// block puts a text in the place of content of a kind that came later.
func (d *downlevel) block(at rpc.Span) {
	kind := string(rpc.Text(d.text, find(d.text, at, "type")))
	var says string
	switch {
	case kind == "audio" && d.revision < frontend.Revision20250326:
		says = "[audio " + d.clipped(at, "mimeType") + ", which is not part of this client's protocol revision]"
	case kind == "resource_link" && d.revision < frontend.Revision20250618:
		says = "[resource " + d.clipped(at, "name") + ": " + d.clipped(at, "uri") + "]"
	default:
		return
	}
	d.changes.replace(at, append(rpc.AppendString([]byte(`{"type":"text","text":`), says), '}'))
}

// clipped is a text in an object, which may be of any length.
func (d *downlevel) clipped(object rpc.Span, name string) string {
	const most = 2 << 10
	text := rpc.Text(d.text, find(d.text, object, name))
	return string(text[:min(len(text), most)])
}

// tools drops the schemas of output that the client's revision does not have.
func (d *downlevel) tools(list rpc.Span) {
	for w := over(d.text, list); ; {
		tool, ok := w.next()
		if !ok {
			return
		}
		schema := find(d.text, tool.value, "outputSchema")
		if !schema.Present() || d.structured(schema) && string(rpc.Text(d.text, find(d.text, schema, "type"))) == "object" {
			continue
		}
		dropMember(d.text, tool.value, "outputSchema", d.changes)
	}
}

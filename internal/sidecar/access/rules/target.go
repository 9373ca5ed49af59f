package rules

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// The methods that name or list something (section 6 of the design).
const (
	methodListTools     = "tools/list"
	methodListPrompts   = "prompts/list"
	methodListResources = "resources/list"
	methodListTemplates = "resources/templates/list"
	methodComplete      = "completion/complete"
)

// class is how the rules treat a message.
type class uint8

const (
	unknown    class = iota // the adapter does not know what it is about
	handshake               // a caller and a server negotiate
	own                     // it is about what the caller has made itself
	list                    // the answer is filtered
	named                   // it names one thing
	subscribes              // it names any number of resources
)

// target is what a message is about.
type target struct {
	class  class
	kind   Kind
	what   search
	shown  []byte   // the name for texts
	uris   rpc.Span // with subscribes
	flawed bool     // it names nothing, or in a way that parsers may read differently
}

// targetOf reads a message that rpc.Scan has accepted. A notification is judged by its method like a
// request: there are servers that run a tools/call without an id.
func targetOf(message []byte, e *rpc.Envelope) target {
	if e.Kind == rpc.Response {
		return target{class: handshake}
	}
	switch string(e.Method) {
	case rpc.MethodInitialize, "server/discover", "ping":
		return target{class: handshake}
	case "logging/setLevel":
		return target{class: own}
	case methodListTools, methodListPrompts, methodListResources, methodListTemplates:
		return target{class: list}
	case rpc.MethodCallTool:
		return nameTarget(Tools, e.Name)
	case rpc.MethodGetPrompt:
		return nameTarget(Prompts, e.Name)
	case rpc.MethodReadResource, "resources/subscribe", "resources/unsubscribe":
		return uriTarget(e.URI)
	case subscription.MethodListen:
		return listenTarget(message, e)
	case methodComplete:
		return completeTarget(message, e)
	}
	return otherTarget(e)
}

// otherTarget goes by the beginning of a method.
func otherTarget(e *rpc.Envelope) target {
	switch {
	case e.Kind == rpc.Notification && bytes.HasPrefix(e.Method, []byte("notifications/")):
		return target{class: handshake}
	case bytes.HasPrefix(e.Method, []byte("tasks/")):
		return target{class: own} // package handle checks whose task it is
	}
	return target{class: unknown}
}

func nameTarget(kind Kind, name []byte) target {
	return target{class: named, kind: kind, what: search{name: name}, shown: name, flawed: name == nil}
}

func uriTarget(uri []byte) target {
	return target{class: named, kind: Resources, what: searchURI(uri), shown: uri, flawed: uri == nil}
}

// searchURI looks for a URI. One that a server could read as another one is given only by a rule for all
// resources.
func searchURI(uri []byte) search { return search{name: uri, onlyAll: isOdd(uri)} }

// searchTemplate looks for a URI, or for a template of URIs. All that a template stands for begins with
// what it has in front of its first variable, so a rule gives it if it gives all that begins so.
func searchTemplate(text []byte) search {
	literal, _, isTemplate := bytes.Cut(text, []byte{'{'})
	return search{name: literal, noExact: isTemplate, onlyAll: isOdd(text)}
}

// isOdd reports whether a server may take a URI for one outside of the directory that it seems to be in:
// it has .., or a slash, backslash or dot in another spelling, or control characters.
func isOdd(uri []byte) bool {
	if bytes.Contains(uri, []byte("..")) || bytes.IndexByte(uri, '\\') >= 0 || bytes.IndexFunc(uri, unicode.IsControl) >= 0 {
		return true
	}
	for i := range max(0, len(uri)-len("2f")) {
		if uri[i] == '%' && isOddEscape(uri[i+1], uri[i+2]) {
			return true
		}
	}
	return false
}

// isOddEscape reports whether the hexadecimal digits are those of a dot, a slash or a backslash.
func isOddEscape(high, low byte) bool {
	low |= 'a' - 'A'
	return high == '2' && (low == 'e' || low == 'f') || high == '5' && low == 'c'
}

// completeTarget reads params.ref, which names a prompt, or a resource by its URI or template.
func completeTarget(message []byte, e *rpc.Envelope) target {
	flawed := target{class: named, flawed: true}
	params, err := rpc.Find(message, e.Params, "ref")
	if err != nil {
		return flawed
	}
	ref, err := rpc.Find(message, params[0], "type", "name", "uri")
	if err != nil {
		return flawed
	}
	kind, name, uri := ref[0], ref[1], ref[2]
	switch of := string(textOf(message, kind)); {
	case of == "ref/prompt" && !uri.Present():
		return nameTarget(Prompts, textOf(message, name))
	case of == "ref/resource" && !name.Present():
		found := uriTarget(textOf(message, uri))
		found.what = searchTemplate(found.shown)
		return found
	}
	return flawed // also if it names both, because servers may not look at the type
}

// listenTarget finds the resources of a subscription (N-01). Changes of lists are free, and a server
// refuses a subscription to nothing itself.
func listenTarget(message []byte, e *rpc.Envelope) target {
	listens := target{class: subscribes}
	params, err := rpc.Find(message, e.Params, "notifications")
	listens.flawed = err != nil || !isAbsentOr('{', message, params[0])
	if listens.flawed {
		return listens
	}
	filter, err := rpc.Find(message, params[0], "resourceSubscriptions")
	listens.flawed = err != nil || !isAbsentOr('[', message, filter[0])
	if listens.flawed {
		return listens
	}
	listens.uris = filter[0]
	for range rpc.Members(message, listens.uris) {
		listens.kind = Resources
		break
	}
	return listens
}

func isAbsentOr(opening byte, message []byte, value rpc.Span) bool {
	return !value.Present() || message[value.Start] == opening || string(value.Of(message)) == "null"
}

// escapedBytes is how long a text with escapes may be. As in a scan, no budget counts the decoded copy.
const escapedBytes = 64 << 10

// textOf returns a string that all parsers read alike, or nil. Half of a surrogate pair, which decodes to
// U+FFFD here, is a character of its own to some.
func textOf(message []byte, value rpc.Span) []byte {
	raw := value.Of(message)
	if bytes.IndexByte(raw, '\\') < 0 {
		return rpc.Text(message, value)
	}
	if len(raw) > escapedBytes {
		return nil
	}
	text := rpc.Text(message, value)
	if bytes.ContainsRune(text, utf8.RuneError) {
		return nil
	}
	return text
}

package upstream

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/wire"
)

// nameIn is what a request is about, for methods that have a header for it (M-13).
func nameIn(request session.Message) []byte {
	e := &request.Envelope
	switch string(e.Method) {
	case methodCallTool, "prompts/get":
		return e.Name
	case "resources/read":
		return e.URI
	case "tasks/get", "tasks/update", "tasks/cancel":
		found, err := wire.Find(request.Bytes, e.Params, "taskId")
		if err != nil {
			return nil
		}
		return wire.Text(request.Bytes, found[0])
	}
	return nil
}

// encoded is a text as it stands in a header: as it is where that is safe (M-16).
func encoded(text string) string {
	const begin, end = "=?base64?", "?="
	unsafe := strings.Trim(text, " \t") != text ||
		strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) ||
		strings.HasPrefix(text, begin) && strings.HasSuffix(text, end)
	if !unsafe {
		return text
	}
	return begin + base64.StdEncoding.EncodeToString([]byte(text)) + end
}

// valueAt is the argument at a path, in the words of a header. What is null, not there or
// no value of that kind has none (M-17).
func valueAt(arguments json.RawMessage, path []string) (string, bool) {
	for _, name := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(arguments, &object) != nil {
			return "", false
		}
		arguments = object[name]
	}
	var value any
	if len(arguments) == 0 || json.Unmarshal(arguments, &value) != nil {
		return "", false
	}
	switch value := value.(type) {
	case string:
		return value, true
	case bool:
		return strconv.FormatBool(value), true
	case float64:
		if text := string(arguments); !strings.ContainsAny(text, ".eE") {
			return text, true
		}
		const safe = 1<<53 - 1 // up to which all parsers read an integer alike
		return strconv.FormatFloat(value, 'f', -1, 64), value == math.Trunc(value) && math.Abs(value) <= safe
	}
	return "", false
}

// schemaDepth bounds how deep arguments with headers can lie.
const schemaDepth = 32

// mirroredIn are the arguments with headers of a tool's schema, by the same rules that
// clients of our own have to follow: those that are reached by the names of properties
// alone, and none if one of them is invalid (M-24).
func mirroredIn(schema json.RawMessage) []mirrored {
	if !bytes.Contains(schema, []byte(annotation)) {
		return nil
	}
	var found []mirrored
	if !gather(schema, nil, &found) {
		return nil
	}
	seen := map[string]bool{}
	for _, m := range found {
		if seen[m.header] {
			return nil
		}
		seen[m.header] = true
	}
	return found
}

// gather says whether all that it finds is valid.
func gather(schema json.RawMessage, path []string, found *[]mirrored) bool {
	var node struct {
		Type       json.RawMessage            `json:"type"`
		Header     json.RawMessage            `json:"x-mcp-header"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(schema, &node) != nil {
		return true // true is a schema, too, and has no headers
	}
	if node.Header != nil && len(path) > 0 {
		var name, kind string
		if json.Unmarshal(node.Header, &name) != nil || !isToken(name) || json.Unmarshal(node.Type, &kind) != nil ||
			!slices.Contains([]string{"string", "integer", "boolean"}, kind) {
			return false
		}
		*found = append(*found, mirrored{slices.Clone(path), http.CanonicalHeaderKey(headerParam + name)})
	}
	if len(path) == schemaDepth && len(node.Properties) > 0 {
		return false
	}
	for name, property := range node.Properties {
		if !gather(property, append(path, name), found) {
			return false
		}
	}
	return true
}

// isToken says whether a text can be part of a header's name (RFC 9110).
func isToken(text string) bool {
	for _, c := range []byte(text) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return text != ""
}

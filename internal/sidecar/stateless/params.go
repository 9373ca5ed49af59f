package stateless

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// param is an argument of a tool that a header repeats.
type param struct {
	path   []string // of names in the arguments
	header string
}

const (
	// schemaDepth bounds how deep arguments with headers can lie.
	schemaDepth = 32
	// safeInteger is the largest that all parsers read alike.
	safeInteger = 1<<53 - 1
)

var (
	errDepth  = errors.New("x-mcp-header lies too deep")
	errToken  = errors.New("x-mcp-header is no name of a header")
	errTwice  = errors.New("x-mcp-header stands twice")
	errScalar = errors.New("x-mcp-header is for strings, integers and booleans")
)

// paramsOf are the arguments with headers of a tool's schema. Only properties of
// properties count: what a schema says by items, references or conditions is not known
// before the arguments are (M-24). If one is invalid the tool has none, as clients do
// not use it then.
func paramsOf(schema json.RawMessage) (found []param, err error) {
	if err := walk(schema, nil, &found); err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b param) int { return strings.Compare(a.header, b.header) })
	for i := 1; i < len(found); i++ {
		if found[i].header == found[i-1].header {
			return nil, fmt.Errorf("%w: %s", errTwice, found[i].header)
		}
	}
	return found, nil
}

func walk(schema json.RawMessage, path []string, found *[]param) error {
	var node struct {
		Type       json.RawMessage            `json:"type"`
		Header     json.RawMessage            `json:"x-mcp-header"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(schema, &node) != nil {
		return nil //nolint:nilerr // A schema may be true, or of a kind that we do not know: it has no headers.
	}
	if node.Header != nil && len(path) > 0 {
		header, err := headerOf(node.Header, node.Type)
		if err != nil {
			return err
		}
		*found = append(*found, param{slices.Clone(path), header})
	}
	if len(path) == schemaDepth && len(node.Properties) > 0 {
		return errDepth
	}
	for name, property := range node.Properties {
		if err := walk(property, append(path, name), found); err != nil {
			return err
		}
	}
	return nil
}

// headerOf is the header that an annotation means, in the spelling that net/http has.
func headerOf(annotation, kind json.RawMessage) (string, error) {
	var name, of string
	if json.Unmarshal(annotation, &name) != nil || name == "" || strings.ContainsFunc(name, isNoToken) {
		return "", errToken
	}
	if json.Unmarshal(kind, &of) != nil || !slices.Contains([]string{"string", "integer", "boolean"}, of) {
		return "", errScalar
	}
	return http.CanonicalHeaderKey(headerParam + name), nil
}

func isNoToken(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// checkParams compares arguments with the headers that repeat them (M-17).
func checkParams(header http.Header, request session.Message, params []param) *refusal {
	if len(params) == 0 {
		return nil
	}
	var body struct {
		Arguments json.RawMessage `json:"arguments"`
	}
	if json.Unmarshal(request.Envelope.Params.Of(request.Bytes), &body) != nil {
		body.Arguments = nil // its syntax was checked, so this does not happen
	}
	for _, p := range params {
		argument := argumentAt(body.Arguments, p.path)
		values := header[p.header]
		switch {
		case argument == nil && len(values) == 0:
			continue
		case argument == nil:
			return mismatch("the header " + p.header + " repeats an argument that is not there")
		case len(values) != 1:
			return mismatch("the header " + p.header + " must be there, once")
		}
		value, ok := decoded(strings.Trim(values[0], " \t"))
		switch {
		case !ok:
			return mismatch("the header " + p.header + " has invalid Base64")
		case !repeats(value, argument):
			return mismatch("the header " + p.header + " is not the argument that it repeats")
		}
	}
	return nil
}

// argumentAt is the argument at a path, or nil if there is none, or null.
func argumentAt(arguments json.RawMessage, path []string) json.RawMessage {
	for _, name := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(arguments, &object) != nil {
			return nil
		}
		arguments = object[name]
	}
	if string(arguments) == "null" {
		return nil
	}
	return arguments
}

// repeats says whether a header has the value of an argument.
func repeats(header string, argument json.RawMessage) bool {
	var value any
	if json.Unmarshal(argument, &value) != nil {
		return false
	}
	switch value := value.(type) {
	case string:
		return header == value
	case bool:
		return header == strconv.FormatBool(value)
	case float64:
		if header == string(argument) {
			return true
		}
		number, err := strconv.ParseFloat(header, 64)
		return err == nil && number == value && number >= -safeInteger && number <= safeInteger
	}
	return false
}

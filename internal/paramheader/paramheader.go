// Package paramheader has the rules by which headers repeat the arguments of a tool, for
// those who send such headers, compare them, or say whether a tool can be used.
package paramheader

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// Annotation is the member of a property's schema that asks for a header.
const Annotation = "x-mcp-header"

// Param is an argument that a header repeats.
type Param struct {
	Path   []string // of names in the arguments
	Header string   // as net/http spells it
}

// Params are the arguments with headers of a tool's input schema, in the order of their
// names. With an error the tool has none, and is not to be used by clients: one
// annotation that is invalid spoils all (M-24).
func Params(schema json.RawMessage) ([]Param, error) {
	if !bytes.Contains(schema, []byte(Annotation)) { // nearly always
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(schema))
	decoder.UseNumber() // a bound in a schema may be too large for Go
	var root any
	if err := decoder.Decode(&root); err != nil {
		return nil, fmt.Errorf("read input schema: %w", err)
	}
	w := walk{seen: map[string]bool{}}
	if err := w.schema(root, nil, true); err != nil {
		return nil, err
	}
	return w.found, nil
}

// Argument is what a call has for the parameter, or nil if that is nothing, or null. It
// is an error if the arguments have it twice, or in a spelling that some parsers take for
// it: the server might act on one that the header does not repeat. The arguments must be
// part of a message that was scanned.
func (p Param) Argument(arguments json.RawMessage) (json.RawMessage, error) {
	for _, name := range p.Path {
		found, err := rpc.Find(arguments, rpc.Span{End: len(arguments)}, name)
		if err != nil {
			return nil, err
		}
		arguments = found[0].Of(arguments)
	}
	if len(arguments) == 0 || string(arguments) == "null" {
		return nil, nil
	}
	return arguments, nil
}

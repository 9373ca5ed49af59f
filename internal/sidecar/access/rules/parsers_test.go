package rules

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/slipway-mcp/slipway/internal/rpc/parserstest"
)

// reading is what a parser reads out of an answer: of each entry, named by its list and index, what it is
// known by. An entry whose name is no string has none.
type reading map[string]string

// parser is something that clients read lists with.
type parser struct {
	name string
	read func(answer []byte) (reading, error)
}

// parsers are all that can run here. The programs are those that internal/rpc asks about messages.
func parsers(tb testing.TB) []parser {
	tb.Helper()
	segmentio, node := parserstest.Start(tb, filepath.Join("..", "..", "..", "rpc", "testdata"), "lists")
	all := []parser{
		{"encoding/json", readWithStandardLibrary},
		{"segmentio/encoding", func(answer []byte) (reading, error) { return textsIn(segmentio("I", answer)) }},
		{"segmentio/encoding with exact names", func(answer []byte) (reading, error) { return textsIn(segmentio("C", answer)) }},
	}
	if node != nil {
		all = append(all, parser{"JSON.parse", func(answer []byte) (reading, error) { return textsIn(node("", answer)) }})
	}
	return all
}

// textsIn returns the texts in the answer of a parser.
func textsIn(described map[string]string, err error) (reading, error) {
	if err != nil {
		return nil, err
	}
	read := reading{}
	for entry, value := range described {
		code, text, _ := strings.Cut(value, ":")
		if code != "text" && code != "utf16" {
			continue
		}
		decoded, err := hex.DecodeString(text)
		if err != nil {
			return nil, err
		}
		if code == "utf16" {
			units := make([]uint16, len(decoded)/2)
			for i := range units {
				units[i] = binary.BigEndian.Uint16(decoded[2*i:])
			}
			decoded = []byte(string(utf16.Decode(units)))
		}
		read[entry] = string(decoded)
	}
	return read, nil
}

// readWithStandardLibrary reads as many clients in Go do, which ignores case.
func readWithStandardLibrary(answer []byte) (reading, error) {
	var m struct {
		Result struct {
			Tools             []json.RawMessage `json:"tools"`
			Prompts           []json.RawMessage `json:"prompts"`
			Resources         []json.RawMessage `json:"resources"`
			ResourceTemplates []json.RawMessage `json:"resourceTemplates"`
		} `json:"result"`
	}
	if err := json.Unmarshal(answer, &m); err != nil {
		return nil, err
	}
	read := reading{}
	for list, entries := range map[string][]json.RawMessage{
		"tools": m.Result.Tools, "prompts": m.Result.Prompts, "resources": m.Result.Resources, "resourceTemplates": m.Result.ResourceTemplates,
	} {
		for i, text := range entries {
			var entry struct {
				Name        any `json:"name"`
				URI         any `json:"uri"`
				URITemplate any `json:"uriTemplate"`
			}
			if err := json.Unmarshal(text, &entry); err != nil {
				continue
			}
			key := map[string]any{"tools": entry.Name, "prompts": entry.Name, "resources": entry.URI, "resourceTemplates": entry.URITemplate}[list]
			if name, ok := key.(string); ok {
				read[fmt.Sprintf("%s/%d", list, i)] = name
			}
		}
	}
	return read, nil
}

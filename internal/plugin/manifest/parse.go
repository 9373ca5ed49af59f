package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

// Bounds of the input. Real files stay far below them: the state of Claude Code, which holds its
// servers, has some megabytes.
const (
	mostBytes = 16 << 20
	mostDepth = 100
)

// parse reads all documents of a file.
func parse(content []byte) ([]*node, error) {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	switch {
	case len(content) > mostBytes:
		return nil, fmt.Errorf("the file has %d bytes, at most %d can be imported: leave out what is not about MCP servers", len(content), mostBytes)
	case !utf8.Valid(content):
		return nil, errors.New("the file is not UTF-8: save it as UTF-8")
	case len(bytes.TrimSpace(content)) == 0:
		return nil, errors.New("the file is empty")
	}
	if !bytes.ContainsAny(bytes.TrimLeft(content, " \t\r\n")[:1], "{[/") {
		return parseYAML(content)
	}
	document, jsonErr := parseJSON(content)
	if jsonErr == nil {
		return []*node{document}, nil
	}
	// YAML can begin like this, too. If it is neither, it was meant to be JSON.
	if documents, err := parseYAML(content); err == nil {
		return documents, nil
	}
	return nil, jsonErr
}

var errDepth = fmt.Errorf("values are nested more than %d levels deep: no supported format needs that", mostDepth)

// parseJSON reads JSON as editors take it for their settings: with comments and trailing commas.
func parseJSON(content []byte) (*node, error) {
	plain := withoutComments(content)
	decoder := json.NewDecoder(bytes.NewReader(plain))
	decoder.UseNumber()
	p := jsonParser{decoder: decoder, content: plain, line: 1}
	root, err := p.value(0)
	if err == nil {
		if _, err = decoder.Token(); errors.Is(err, io.EOF) {
			return root, nil
		}
		err = errors.New("there is more after the end of the JSON value: a file holds one")
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the JSON ends too early: a bracket or a quote is missing")
	}
	return nil, fmt.Errorf("line %d: %w", p.lineNow(), err)
}

type jsonParser struct {
	decoder *json.Decoder
	content []byte
	at      int // up to where lines are counted
	line    int
}

func (p *jsonParser) lineNow() int {
	now := min(int(p.decoder.InputOffset()), len(p.content))
	p.line += bytes.Count(p.content[p.at:now], []byte("\n"))
	p.at = now
	return p.line
}

func (p *jsonParser) value(depth int) (*node, error) {
	token, err := p.decoder.Token()
	if err != nil {
		return nil, err
	}
	n := &node{line: p.lineNow()}
	switch token := token.(type) {
	case json.Delim:
		if depth >= mostDepth {
			return nil, errDepth
		}
		if token == '{' {
			return n, p.object(n, depth)
		}
		return n, p.list(n, depth)
	case string:
		n.kind, n.value = kindText, token
	case json.Number:
		n.kind, n.value = kindNumber, token.String()
	case bool:
		n.kind, n.value = kindBool, strconv.FormatBool(token)
	}
	return n, nil
}

func (p *jsonParser) object(n *node, depth int) error {
	n.kind, n.fields = kindObject, map[string]*node{}
	for p.decoder.More() {
		token, err := p.decoder.Token()
		if err != nil {
			return err
		}
		key, isText := token.(string)
		if !isText {
			return fmt.Errorf("%v cannot be the name of a field", token)
		}
		if n.fields[key] != nil {
			return fmt.Errorf("%q is there twice: remove one", key)
		}
		child, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		n.addField(key, child)
	}
	_, err := p.decoder.Token()
	return err
}

func (p *jsonParser) list(n *node, depth int) error {
	n.kind = kindList
	for p.decoder.More() {
		child, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		n.addItem(child)
	}
	_, err := p.decoder.Token()
	return err
}

// parseYAML reads YAML documents. Empty ones are left out.
func parseYAML(content []byte) ([]*node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var documents []*node
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return documents, nil
		} else if err != nil {
			return nil, errors.New(strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "yaml: "))
		}
		if len(document.Content) == 0 {
			continue
		}
		root, err := fromYAML(document.Content[0], 0)
		if err != nil {
			return nil, err
		}
		if root.kind != kindNull {
			documents = append(documents, root)
		}
	}
}

func fromYAML(from *yaml.Node, depth int) (*node, error) {
	if depth >= mostDepth {
		return nil, fmt.Errorf("line %d: %w", from.Line, errDepth)
	}
	n := &node{line: from.Line}
	switch from.Kind {
	case yaml.ScalarNode:
		return n, n.setScalar(from)
	case yaml.SequenceNode:
		n.kind = kindList
		for _, item := range from.Content {
			child, err := fromYAML(item, depth+1)
			if err != nil {
				return nil, err
			}
			n.addItem(child)
		}
		return n, nil
	case yaml.MappingNode:
		return n, n.setFields(from, depth)
	default:
		// A few aliases can stand for terabytes, and no tool writes them into manifests.
		return nil, fmt.Errorf("line %d: the alias *%s cannot be imported: write the value out", from.Line, from.Value)
	}
}

func (n *node) setFields(from *yaml.Node, depth int) error {
	n.kind, n.fields = kindObject, map[string]*node{}
	for i := 0; i+1 < len(from.Content); i += 2 {
		key, value := from.Content[i], from.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode:
			return fmt.Errorf("line %d: the name of a field must be text", key.Line)
		case key.ShortTag() == "!!merge":
			return fmt.Errorf("line %d: the merge key << cannot be imported: write the fields out", key.Line)
		case n.fields[key.Value] != nil:
			return fmt.Errorf("line %d: %q is there twice: remove one", key.Line, key.Value)
		}
		child, err := fromYAML(value, depth+1)
		if err != nil {
			return err
		}
		n.addField(key.Value, child)
	}
	return nil
}

func (n *node) setScalar(from *yaml.Node) error {
	n.value = from.Value
	switch tag := from.ShortTag(); tag {
	case "!!str", "!!timestamp":
		n.kind = kindText
	case "!!null":
		n.kind = kindNull
	case "!!bool":
		n.kind, n.value = kindBool, strings.ToLower(from.Value)
		if n.value != "true" && n.value != "false" {
			return fmt.Errorf("line %d: write true or false, not %s", from.Line, from.Value)
		}
	case "!!int", "!!float":
		return n.setNumber(from)
	default:
		return fmt.Errorf("line %d: the YAML tag %s cannot be imported: write plain text", from.Line, tag)
	}
	return nil
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// setNumber keeps a number as it is written if JSON has that form, so that 1.10 stays 1.10.
func (n *node) setNumber(from *yaml.Node) error {
	n.kind = kindNumber
	if jsonNumber.MatchString(from.Value) {
		return nil
	}
	var whole int64
	if from.Decode(&whole) == nil {
		n.value = strconv.FormatInt(whole, 10)
		return nil
	}
	var number float64
	if err := from.Decode(&number); err != nil || math.IsInf(number, 0) || math.IsNaN(number) {
		return fmt.Errorf("line %d: the number %s cannot be imported: write it as JSON has it, or in quotes if it is text", from.Line, from.Value)
	}
	n.value = strconv.FormatFloat(number, 'g', -1, 64)
	return nil
}

package mcpprobe

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
)

// builder puts a catalog together, piece by piece and within limits.
type builder struct {
	limits  Limits
	strict  bool // an unusable item is an error
	modern  bool // the builder checks header annotations of tools
	bytes   int
	catalog Catalog
}

func newBuilder(limits Limits) *builder {
	return &builder{
		limits: limits.withDefaults(),
		catalog: Catalog{
			Tools:             []Tool{},
			Prompts:           []Prompt{},
			Resources:         []Resource{},
			ResourceTemplates: []ResourceTemplate{},
			Excluded:          []Excluded{},
		},
	}
}

// keeper puts one item, in canonical form, where it belongs. With an error it still
// returns the item's name if it could read that.
type keeper func(b *builder, raw []byte) (name string, err error)

func keepTool(b *builder, raw []byte) (string, error) {
	tool, err := newTool(raw)
	if err == nil && b.modern {
		_, err = paramheader.Params(tool.InputSchema)
	}
	if err == nil {
		b.catalog.Tools = append(b.catalog.Tools, tool)
	}
	return tool.Name, err
}

func keepPrompt(b *builder, raw []byte) (string, error) {
	prompt, err := newPrompt(raw)
	if err == nil {
		b.catalog.Prompts = append(b.catalog.Prompts, prompt)
	}
	return prompt.Name, err
}

func keepResource(b *builder, raw []byte) (string, error) {
	resource, err := newResource(raw)
	if err == nil {
		b.catalog.Resources = append(b.catalog.Resources, resource)
	}
	return resource.Name, err
}

func keepResourceTemplate(b *builder, raw []byte) (string, error) {
	template, err := newResourceTemplate(raw)
	if err == nil {
		b.catalog.ResourceTemplates = append(b.catalog.ResourceTemplates, template)
	}
	return template.Name, err
}

func keepExcluded(b *builder, raw []byte) (string, error) {
	var excluded Excluded
	if err := json.Unmarshal(raw, &excluded); err != nil {
		return "", err
	}
	b.catalog.Excluded = append(b.catalog.Excluded, excluded)
	return excluded.Name, nil
}

// add takes a page of a list: an array, or nothing. The count runs over all pages.
func (b *builder) add(keep keeper, method string, array []byte, count *int) error {
	array = bytes.TrimSpace(array)
	if len(array) == 0 || string(array) == "null" {
		return nil
	}
	if array[0] != '[' {
		return protocolError("the list is not an array")
	}
	if len(bytes.TrimSpace(array[1:len(array)-1])) == 0 {
		return nil
	}
	return rpc.Batch(array, func(item []byte) error {
		*count++
		if *count > b.limits.Items {
			return tooLarge(LimitItems, b.limits.Items)
		}
		return b.addItem(keep, method, item)
	})
}

func (b *builder) addItem(keep keeper, method string, item []byte) error {
	limit := b.limits.ItemBytes
	written := limit
	if b.strict {
		// json.Marshal has written it, and takes six bytes for some characters.
		written = 6 * limit
	}
	if len(item) > written {
		return tooLarge(LimitItemBytes, limit)
	}
	raw, err := canonical(item)
	if err != nil {
		return protocolError("an item of the list is not JSON")
	}
	if len(raw) > limit {
		return tooLarge(LimitItemBytes, limit)
	}
	if err := b.spend(len(raw)); err != nil {
		return err
	}
	name, err := keep(b, raw)
	switch {
	case err == nil:
		return nil
	case b.strict:
		return fmt.Errorf("an item of a list: %w", err)
	default:
		return b.exclude(Excluded{List: method, Name: clean(name), Reason: clean(err.Error())})
	}
}

// exclude counts as many bytes as DecodeCatalog does when it reads the entry.
func (b *builder) exclude(excluded Excluded) error {
	b.catalog.Excluded = append(b.catalog.Excluded, excluded)
	encoded, err := json.Marshal(excluded)
	if err != nil {
		return err
	}
	return b.spend(len(encoded))
}

func (b *builder) spend(n int) error {
	b.bytes += n
	if b.bytes > b.limits.CatalogBytes {
		return tooLarge(LimitCatalogBytes, b.limits.CatalogBytes)
	}
	return nil
}

func (b *builder) setCapabilities(raw []byte) error {
	if len(raw) == 0 || string(raw) == "null" {
		raw = []byte("{}")
	}
	raw, err := canonical(raw)
	if err != nil || raw[0] != '{' {
		return protocolError("the capabilities are not an object")
	}
	b.catalog.Capabilities = raw
	return b.spend(len(raw))
}

func (b *builder) build() (*Catalog, error) {
	catalog := b.catalog
	if err := catalog.finish(); err != nil {
		return nil, err
	}
	return &catalog, nil
}

// canonical returns JSON with members sorted, without white space and with strings
// escaped in one way. Numbers keep their spelling. Of two members with the same name the
// last one counts.
func canonical(raw []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value")
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// digest is over the catalog's JSON, in which everything has one form only.
func (c *Catalog) digest() (string, error) {
	plain := *c
	plain.Digest = ""
	hash := sha256.New()
	if err := json.NewEncoder(hash).Encode(plain); err != nil {
		return "", fmt.Errorf("digest catalog: %w", err)
	}
	return "sha256:" + hex.EncodeToString(hash.Sum(nil)), nil
}

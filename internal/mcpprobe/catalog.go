package mcpprobe

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Catalog is what a server is and offers. Lists are sorted, JSON is in one canonical
// form, and equal servers have equal catalogs: encoding and decoding one changes
// nothing.
type Catalog struct {
	// Digest identifies everything else in the catalog, as "sha256:" and hexadecimal
	// digits. It does not depend on the order of the server's lists.
	Digest            string             `json:"digest"`
	Server            Server             `json:"server"`
	Capabilities      json.RawMessage    `json:"capabilities"` // an object, as declared
	Tools             []Tool             `json:"tools"`
	Prompts           []Prompt           `json:"prompts"`
	Resources         []Resource         `json:"resources"`
	ResourceTemplates []ResourceTemplate `json:"resourceTemplates"`
	// Excluded are items of the server's lists that no client can use.
	Excluded []Excluded `json:"excluded"`
}

// Server is what a server says of itself.
type Server struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	Version string `json:"version"`
	// ProtocolVersion is the one that server and probe have agreed on.
	ProtocolVersion string `json:"protocolVersion"`
	// ProtocolVersions are those in the answer to server/discover; empty for servers that
	// do not know that request. An adapter in front of the server may put the versions
	// here that clients can use, see Catalog.Serving.
	ProtocolVersions []string `json:"protocolVersions,omitempty"`
	Instructions     string   `json:"instructions,omitempty"`
}

// Tool is one tool. Raw is all of it; the other fields are read from there.
type Tool struct {
	Name         string
	Title        string
	Description  string
	InputSchema  json.RawMessage
	OutputSchema json.RawMessage
	Annotations  Annotations
	Raw          json.RawMessage
}

// Annotations are a server's hints about a tool; nil is a hint not given.
type Annotations struct {
	Title           string `json:"title"`
	ReadOnlyHint    *bool  `json:"readOnlyHint"`
	DestructiveHint *bool  `json:"destructiveHint"`
	IdempotentHint  *bool  `json:"idempotentHint"`
	OpenWorldHint   *bool  `json:"openWorldHint"`
}

// Prompt is one prompt; Raw is all of it.
type Prompt struct {
	Name        string
	Title       string
	Description string
	Raw         json.RawMessage
}

// Resource is one resource; Raw is all of it.
type Resource struct {
	URI         string
	Name        string
	Title       string
	Description string
	MIMEType    string
	Raw         json.RawMessage
}

// ResourceTemplate is one resource template; Raw is all of it.
type ResourceTemplate struct {
	URITemplate string
	Name        string
	Title       string
	Description string
	MIMEType    string
	Raw         json.RawMessage
}

// Excluded is an item that no client can use, and why.
type Excluded struct {
	List   string `json:"list"` // the method of the list
	Name   string `json:"name,omitempty"`
	Reason string `json:"reason"`
}

// Serving returns the catalog of the same server behind an adapter that serves clients
// of these protocol versions. It shares its lists with the original.
func (c *Catalog) Serving(versions []string) (*Catalog, error) {
	serving := *c
	serving.Server.ProtocolVersions = versions
	digest, err := serving.digest()
	serving.Digest = digest
	return &serving, err
}

// Counts are the lengths of a catalog's lists.
type Counts struct {
	Tools, Prompts, Resources, ResourceTemplates int
}

// Counts counts.
func (c *Catalog) Counts() Counts {
	return Counts{
		Tools:             len(c.Tools),
		Prompts:           len(c.Prompts),
		Resources:         len(c.Resources),
		ResourceTemplates: len(c.ResourceTemplates),
	}
}

// MarshalJSON returns Raw.
func (t Tool) MarshalJSON() ([]byte, error) { return t.Raw, nil }

// UnmarshalJSON reads a tool of a catalog that was stored, for those who read parts of one: the digest
// is over the whole.
func (t *Tool) UnmarshalJSON(data []byte) error {
	raw, err := canonical(data)
	if err != nil {
		return err
	}
	*t, err = newTool(raw)
	return err
}

// MarshalJSON returns Raw.
func (p Prompt) MarshalJSON() ([]byte, error) { return p.Raw, nil }

// MarshalJSON returns Raw.
func (r Resource) MarshalJSON() ([]byte, error) { return r.Raw, nil }

// MarshalJSON returns Raw.
func (r ResourceTemplate) MarshalJSON() ([]byte, error) { return r.Raw, nil }

// fields are the members that the builder reads from an item of any list. Raw is
// canonical, so that its members are sorted, and the exact spelling of a name comes after
// any other case.
type fields struct {
	Name         string          `json:"name"`
	Title        string          `json:"title"`
	Description  string          `json:"description"`
	URI          string          `json:"uri"`
	URITemplate  string          `json:"uriTemplate"`
	MIMEType     string          `json:"mimeType"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema"`
	Annotations  json.RawMessage `json:"annotations"` // of a tool; resources have others
}

var (
	errNoName  = errors.New("it has no name")
	errNoURI   = errors.New("it has no URI")
	errNoShape = errors.New("it is not an object of the expected shape")
)

func readFields(raw []byte) (fields, error) {
	var f fields
	if raw[0] != '{' || json.Unmarshal(raw, &f) != nil {
		return fields{}, errNoShape
	}
	return f, nil
}

func newTool(raw []byte) (Tool, error) {
	f, err := readFields(raw)
	if err != nil {
		return Tool{}, err
	}
	tool := Tool{
		Name: f.Name, Title: f.Title, Description: f.Description,
		InputSchema: f.InputSchema, OutputSchema: f.OutputSchema, Raw: raw,
	}
	if f.Annotations != nil && json.Unmarshal(f.Annotations, &tool.Annotations) != nil {
		return tool, errNoShape
	}
	if f.Name == "" {
		return tool, errNoName
	}
	return tool, nil
}

func newPrompt(raw []byte) (Prompt, error) {
	f, err := readFields(raw)
	if err == nil && f.Name == "" {
		err = errNoName
	}
	return Prompt{Name: f.Name, Title: f.Title, Description: f.Description, Raw: raw}, err
}

func newResource(raw []byte) (Resource, error) {
	f, err := readFields(raw)
	if err == nil && f.URI == "" {
		err = errNoURI
	}
	return Resource{
		URI: f.URI, Name: f.Name, Title: f.Title, Description: f.Description, MIMEType: f.MIMEType, Raw: raw,
	}, err
}

func newResourceTemplate(raw []byte) (ResourceTemplate, error) {
	f, err := readFields(raw)
	if err == nil && f.URITemplate == "" {
		err = errNoURI
	}
	return ResourceTemplate{
		URITemplate: f.URITemplate, Name: f.Name, Title: f.Title, Description: f.Description, MIMEType: f.MIMEType, Raw: raw,
	}, err
}

// finish sorts the lists and sets the digest.
func (c *Catalog) finish() error {
	slices.SortFunc(c.Tools, func(a, b Tool) int { return order(a.Name, b.Name, a.Raw, b.Raw) })
	slices.SortFunc(c.Prompts, func(a, b Prompt) int { return order(a.Name, b.Name, a.Raw, b.Raw) })
	slices.SortFunc(c.Resources, func(a, b Resource) int { return order(a.URI, b.URI, a.Raw, b.Raw) })
	slices.SortFunc(c.ResourceTemplates, func(a, b ResourceTemplate) int {
		return order(a.URITemplate, b.URITemplate, a.Raw, b.Raw)
	})
	slices.SortFunc(c.Excluded, func(a, b Excluded) int {
		return cmp.Or(cmp.Compare(a.List, b.List), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Reason, b.Reason))
	})
	digest, err := c.digest()
	c.Digest = digest
	return err
}

func order(aKey, bKey string, aRaw, bRaw []byte) int {
	return cmp.Or(cmp.Compare(aKey, bKey), bytes.Compare(aRaw, bRaw))
}

// DecodeCatalog reads a catalog from JSON, and checks it against the limits and its own
// digest.
func DecodeCatalog(data []byte, limits Limits) (*Catalog, error) {
	var stored struct {
		Digest       string          `json:"digest"`
		Server       Server          `json:"server"`
		Capabilities json.RawMessage `json:"capabilities"`
		Tools        json.RawMessage `json:"tools"`
		Prompts      json.RawMessage `json:"prompts"`
		Resources    json.RawMessage `json:"resources"`
		Templates    json.RawMessage `json:"resourceTemplates"`
		Excluded     json.RawMessage `json:"excluded"`
	}
	if err := json.Unmarshal(data, &stored); err != nil {
		return nil, fmt.Errorf("decode catalog: %w", err)
	}
	b := newBuilder(limits)
	b.strict = true
	b.catalog.Server = stored.Server
	err := b.setCapabilities(stored.Capabilities)
	for _, part := range []struct {
		keep  keeper
		array json.RawMessage
	}{
		{keepTool, stored.Tools},
		{keepPrompt, stored.Prompts},
		{keepResource, stored.Resources},
		{keepResourceTemplate, stored.Templates},
		{keepExcluded, stored.Excluded},
	} {
		if err == nil {
			count := 0
			err = b.add(part.keep, "", part.array, &count)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("decode catalog: %w", err)
	}
	catalog, err := b.build()
	if err != nil {
		return nil, fmt.Errorf("decode catalog: %w", err)
	}
	if catalog.Digest != stored.Digest {
		return nil, errors.New("decode catalog: it does not match its digest")
	}
	return catalog, nil
}

// UnmarshalJSON is DecodeCatalog with the default limits.
func (c *Catalog) UnmarshalJSON(data []byte) error {
	decoded, err := DecodeCatalog(data, Limits{})
	if err != nil {
		return err
	}
	*c = *decoded
	return nil
}

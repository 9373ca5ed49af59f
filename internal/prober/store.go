package prober

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/text"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// maxStored is what a stored catalog may have. A ConfigMap takes 1 MiB, with its
// metadata.
const maxStored = 900 << 10

// store makes of a catalog what a ConfigMap takes. One that is too large loses
// first what is least missed: the schemas of results, then those of arguments, then
// descriptions, then all but names, each the largest first; at last the lists are cut.
func store(catalog *mcpprobe.Catalog) *workload.Catalog {
	return storeWithin(catalog, maxStored)
}

func storeWithin(catalog *mcpprobe.Catalog, limit int) *workload.Catalog {
	draft := newDraft(catalog)
	trim := &trimmer{draft: draft, limit: limit}
	trim.dropMembers("output schema", "outputSchema")
	trim.dropMembers("input schema", "inputSchema")
	trim.dropMembers("description", "description")
	trim.dropWords()
	trim.keepNames()
	trim.cutLists()
	return &workload.Catalog{Digest: catalog.Digest, JSON: draft.encode(), Trimmed: trim.sentence()}
}

// draft is a catalog on its way to a ConfigMap. Items are as the server wrote them
// and are replaced, never changed.
type draft struct {
	Digest            string              `json:"digest"`
	Server            mcpprobe.Server     `json:"server"`
	Capabilities      json.RawMessage     `json:"capabilities"`
	Tools             []json.RawMessage   `json:"tools"`
	Prompts           []json.RawMessage   `json:"prompts"`
	Resources         []json.RawMessage   `json:"resources"`
	ResourceTemplates []json.RawMessage   `json:"resourceTemplates"`
	Excluded          []mcpprobe.Excluded `json:"excluded"`
}

func newDraft(catalog *mcpprobe.Catalog) *draft {
	d := &draft{
		Digest: catalog.Digest, Server: catalog.Server, Capabilities: catalog.Capabilities, Excluded: catalog.Excluded,
		Tools:             raws(catalog.Tools, func(t mcpprobe.Tool) json.RawMessage { return t.Raw }),
		Prompts:           raws(catalog.Prompts, func(p mcpprobe.Prompt) json.RawMessage { return p.Raw }),
		Resources:         raws(catalog.Resources, func(r mcpprobe.Resource) json.RawMessage { return r.Raw }),
		ResourceTemplates: raws(catalog.ResourceTemplates, func(r mcpprobe.ResourceTemplate) json.RawMessage { return r.Raw }),
	}
	if len(d.Capabilities) == 0 {
		d.Capabilities = json.RawMessage("{}")
	}
	if d.Excluded == nil {
		d.Excluded = []mcpprobe.Excluded{}
	}
	return d
}

func raws[T any](items []T, raw func(T) json.RawMessage) []json.RawMessage {
	list := make([]json.RawMessage, len(items))
	for i := range items {
		list[i] = raw(items[i])
	}
	return list
}

// lists are those of the draft, in the order of what is missed most.
func (d *draft) lists() []namedList {
	return []namedList{{"tools", &d.Tools}, {"prompts", &d.Prompts}, {"resources", &d.Resources}, {"resource templates", &d.ResourceTemplates}}
}

type namedList struct {
	name  string
	items *[]json.RawMessage
}

func (d *draft) encode() []byte { return encode(d) }

// encode is json.Marshal that leaves characters as the server wrote them. What it is
// called with can be encoded: it was decoded from JSON.
func encode(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return []byte("{}")
	}
	return slices.Clip(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
}

// size is that of the encoded draft. Commas are counted for every item.
func (d *draft) size() int {
	frame := *d
	size := 0
	for _, list := range frame.lists() {
		for _, item := range *list.items {
			size += len(item) + 1
		}
		*list.items = []json.RawMessage{}
	}
	return size + len(encode(&frame))
}

// trimmer makes a draft smaller, step by step, until it fits.
type trimmer struct {
	draft *draft
	limit int
	left  []string // what was left out
}

func (t *trimmer) excess() int { return t.draft.size() - t.limit }

// slot is an item of a list, with what leaving something out of it would gain.
type slot struct {
	item *json.RawMessage
	gain int
}

// slots are the items that something can be gained from, the largest gain first.
func (t *trimmer) slots(gain func(item json.RawMessage) int) []slot {
	var slots []slot
	for _, list := range t.draft.lists() {
		for i := range *list.items {
			item := &(*list.items)[i]
			if g := gain(*item); g > 0 {
				slots = append(slots, slot{item, g})
			}
		}
	}
	slices.SortStableFunc(slots, func(a, b slot) int { return cmp.Compare(b.gain, a.gain) })
	return slots
}

// dropMembers leaves a member of items out, where it is largest, until the rest fits.
func (t *trimmer) dropMembers(what, member string) {
	excess := t.excess()
	if excess <= 0 {
		return
	}
	dropped := 0
	for _, slot := range t.slots(func(item json.RawMessage) int { return len(members(item)[member]) }) {
		if excess <= 0 {
			break
		}
		before := len(*slot.item)
		object := members(*slot.item)
		delete(object, member)
		*slot.item = encode(object)
		excess -= before - len(*slot.item)
		dropped++
	}
	t.note(dropped, what)
}

func (t *trimmer) note(count int, what string) {
	switch {
	case count == 1:
		t.left = append(t.left, "1 "+what)
	case count > 1:
		t.left = append(t.left, fmt.Sprintf("%d %ss", count, what))
	}
}

// Words that a server may have on itself in a catalog that has to be trimmed.
const (
	keptInstructions = 32 << 10 // characters
	keptSelf         = 1 << 10  // characters of a name or version
	keptVersions     = 16
	keptCapabilities = 32 << 10 // bytes
)

// dropWords leaves out what the server says about itself, if that is long, and the
// items that were excluded from the lists.
func (t *trimmer) dropWords() {
	if t.excess() <= 0 {
		return
	}
	d := t.draft
	if len(d.Excluded) > 0 {
		t.note(len(d.Excluded), "excluded item")
		d.Excluded = []mcpprobe.Excluded{}
	}
	before := len(encode(d.Server)) + len(d.Capabilities)
	d.Server.Name, d.Server.Title, d.Server.Version = text.Cut(d.Server.Name, keptSelf), text.Cut(d.Server.Title, keptSelf), text.Cut(d.Server.Version, keptSelf)
	d.Server.Instructions = text.Cut(d.Server.Instructions, keptInstructions)
	d.Server.ProtocolVersion = text.Cut(d.Server.ProtocolVersion, keptSelf)
	versions := slices.Clone(d.Server.ProtocolVersions[:min(len(d.Server.ProtocolVersions), keptVersions)])
	for i := range versions {
		versions[i] = text.Cut(versions[i], keptSelf)
	}
	d.Server.ProtocolVersions = versions
	if len(d.Capabilities) > keptCapabilities {
		d.Capabilities = json.RawMessage("{}")
	}
	if len(encode(d.Server))+len(d.Capabilities) < before {
		t.left = append(t.left, "part of what the server says of itself")
	}
}

// keepNames leaves everything out of items but what they are called by.
func (t *trimmer) keepNames() {
	excess := t.excess()
	if excess <= 0 {
		return
	}
	reduced := 0
	for _, slot := range t.slots(func(item json.RawMessage) int { return len(item) - len(namesOf(item)) }) {
		if excess <= 0 {
			break
		}
		names := namesOf(*slot.item)
		excess -= len(*slot.item) - len(names)
		*slot.item = names
		reduced++
	}
	if reduced > 0 {
		t.left = append(t.left, fmt.Sprintf("all but the names of %d items", reduced))
	}
}

func namesOf(item json.RawMessage) json.RawMessage {
	object := members(item)
	names := map[string]json.RawMessage{}
	for _, member := range []string{"name", "title", "uri", "uriTemplate"} {
		if value, ok := object[member]; ok {
			names[member] = value
		}
	}
	return encode(names)
}

// cutLists drops the ends of lists until the rest fits.
func (t *trimmer) cutLists() {
	if t.excess() <= 0 {
		return
	}
	whole := t.draft.lists()
	frame := *t.draft
	for _, list := range frame.lists() {
		*list.items = []json.RawMessage{}
	}
	room := t.limit - frame.size()
	for _, list := range whole {
		kept := 0
		for _, item := range *list.items {
			if len(item)+1 > room {
				break
			}
			room -= len(item) + 1
			kept++
		}
		if total := len(*list.items); kept < total {
			t.left = append(t.left, fmt.Sprintf("%d of %d %s", total-kept, total, list.name))
			*list.items = (*list.items)[:kept]
		}
	}
}

// sentence says what was left out; empty if nothing was.
func (t *trimmer) sentence() string {
	if len(t.left) == 0 {
		return ""
	}
	return fmt.Sprintf("The catalog is larger than the %d KiB that are kept of one, so this is left out: %s.",
		t.limit>>10, strings.Join(t.left, ", "))
}

package manifest

import (
	"strings"
)

// read imports all documents of a file.
func (i *importer) read(content []byte) {
	documents, err := parse(content)
	if err != nil {
		i.problem("%v", err)
		return
	}
	if len(documents) == 0 {
		i.problem("the file is empty")
	}
	for _, document := range documents {
		i.document(document)
	}
}

func (i *importer) document(root *node) {
	switch {
	case root.get("apiVersion") != nil && root.get("kind") != nil:
		i.object(root)
	case isObject(root.get("mcpServers")):
		i.client(root, root.get("mcpServers"), nil)
	case isObject(root.get("servers")):
		i.client(root, root.get("servers"), root.get("inputs"))
	case isObject(root.at("mcp", "servers")): // settings.json of VS Code
		i.client(root, root.at("mcp", "servers"), root.at("mcp", "inputs"))
	default:
		i.problem("line %d: this is no format that can be imported. It must be the configuration of an MCP client, which has "+
			"an object mcpServers or servers, or an MCPServer of ToolHive, kmcp or mcp-lifecycle-operator, which has apiVersion and kind", root.line)
	}
}

func isObject(n *node) bool { return n != nil && n.kind == kindObject }

// object imports one Kubernetes object, or a list of them.
func (i *importer) object(root *node) {
	apiVersion, kind := i.text(root.get("apiVersion")), i.text(root.get("kind"))
	if items := root.get("items"); items != nil && strings.HasSuffix(kind, "List") {
		root.get("metadata").tick() // only the API server writes it
		for _, item := range i.list(items) {
			i.member(item)
		}
		i.leftovers(kind, root, nil)
		return
	}
	name := strings.TrimPrefix(i.text(root.at("metadata", "namespace"))+"/"+i.text(root.at("metadata", "name")), "/")
	name = strings.TrimSpace(kind + " " + name)
	group, _, _ := strings.Cut(apiVersion, "/")
	read := i.format(group, kind)
	if read == nil {
		i.drop(name, "", whyNot(group, kind))
		return
	}
	d := i.newDraft(name, root)
	d.metadata(root.get("metadata"))
	reasons := read(d, root.get("spec"))
	root.get("status").tick()
	i.leftovers(name, root, reasons)
	d.finish()
}

// member imports an object of a list.
func (i *importer) member(item *node) {
	if item.get("apiVersion") == nil || item.get("kind") == nil {
		i.problem("%s must be a Kubernetes object, with apiVersion and kind", item.place())
		return
	}
	i.object(item)
	item.tick() // it has been reported by itself
}

// format returns what reads a kind of object. It returns why fields that it does not know are not
// carried over.
func (i *importer) format(group, kind string) func(*draft, *node) map[string]string {
	if kind != "MCPServer" {
		return nil
	}
	switch group {
	case "toolhive.stacklok.dev":
		return (*draft).toolHive
	case "kagent.dev":
		return (*draft).kmcp
	case "mcp.x-k8s.io":
		return (*draft).lifecycle
	default:
		return nil
	}
}

func whyNot(group, kind string) string {
	switch {
	case group == serverKind.Group:
		return "it is an object of Slipway already: apply it as it is"
	case kind == "MCPRemoteProxy" || kind == "MCPServerEntry" || kind == "RemoteMCPServer":
		return "servers that run elsewhere cannot be carried over yet: connect clients to their URL"
	case group == "toolhive.stacklok.dev" || group == "kagent.dev" || group == "mcp.x-k8s.io" || kind == "MCPServer":
		return "only MCPServers of ToolHive, kmcp and mcp-lifecycle-operator can be imported"
	default:
		return "it is no MCP server: if the servers need it, apply it as it is"
	}
}

// leftovers names everything that was not read. Reasons are by the beginning of a path.
func (i *importer) leftovers(object string, root *node, reasons map[string]string) {
	for _, n := range root.unread() {
		path := relative(n, root)
		i.drop(object, path, reasonFor(path, reasons))
	}
}

// relative is the path of a node below another.
func relative(n, root *node) string {
	return strings.TrimPrefix(strings.TrimPrefix(n.path(), root.path()), ".")
}

func reasonFor(path string, reasons map[string]string) string {
	longest, why := -1, "Slipway has no field for it"
	for prefix, reason := range reasons {
		if rest, found := strings.CutPrefix(path, prefix); found && (rest == "" || rest[0] == '.' || rest[0] == '[') && len(prefix) > longest {
			longest, why = len(prefix), reason
		}
	}
	return why
}

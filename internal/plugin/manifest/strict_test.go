package manifest

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// silent are values that equal the default, or that only an API server writes. The result is the same without
// them. A path ends with one of these.
var silent = []string{
	".type",          // stdio, of a client's server, and of an input
	".transport",     // stdio
	".transportType", // stdio
	".runtime",       // kubernetes, in kmcp
	".stdioTransport",
	".password", // of an input without a default: what is not known goes into a Secret anyway
	".uid", ".resourceVersion", ".creationTimestamp", ".generation", ".phase", ".url", `["kubectl.kubernetes.io/last-applied-configuration"]`,
}

// silentFlags are words of docker run that hold for every pod.
var silentFlags = []string{"container", "-i", "--rm", "--init"}

// Whatever is taken away from an input changes the result: each value is carried over, or named.
func TestEveryValueCounts(t *testing.T) {
	for name, file := range cases(t) {
		t.Run(name, func(t *testing.T) {
			documents, err := parse(file.Content)
			if err != nil {
				t.Fatal(err)
			}
			file.Content = encodeWithout(t, documents, nil) // in the form that the others have
			whole := outcome(t, file)
			result, err := Import([]File{file}, Options{WithSecrets: true})
			if err != nil {
				t.Fatal(err)
			}
			leaves := 0
			for number, document := range documents {
				for _, leaf := range leavesOf(document) {
					leaves++
					without := File{Name: file.Name, Content: encodeWithout(t, documents, leaf)}
					if outcome(t, without) == whole && !isSilent(leaf) && !isNamed(result.Dropped, leaf) {
						t.Errorf("document %d: %s can be removed without a change of the result", number, leaf.path())
					}
				}
			}
			if leaves < 5 {
				t.Errorf("found %d values", leaves)
			}
		})
	}
}

func isSilent(n *node) bool {
	if slices.Contains(silentFlags, n.value) {
		return true
	}
	for _, ending := range silent {
		if strings.HasSuffix(n.path(), ending) {
			return true
		}
	}
	return false
}

// isNamed says whether a value, or what it is a part of, is named as dropped.
func isNamed(dropped []Remark, leaf *node) bool {
	for _, remark := range dropped {
		isWhole := remark.Field == "" || strings.HasPrefix(remark.Why, "the server is not carried over")
		for root := leaf; root != nil; root = root.parent {
			if !isCalled(root, remark.Object) {
				continue
			}
			for at := leaf; at != root; at = at.parent {
				if isWhole || relative(at, root) == remark.Field {
					return true
				}
			}
		}
	}
	return false
}

// isCalled says whether a node is the object of a remark.
func isCalled(n *node, object string) bool {
	if object == "" {
		return n.parent == nil
	}
	_, name, isManifest := strings.Cut(object, " ")
	if metadata := n.get("metadata"); metadata != nil && isManifest {
		_, plain, hasNamespace := strings.Cut(name, "/")
		if hasNamespace {
			name = plain
		}
		return metadata.get("name") != nil && metadata.get("name").value == name
	}
	return n.name == "."+object || n.name == "["+strconv.Quote(object)+"]"
}

// outcome is everything that an import says.
func outcome(t *testing.T, file File) string {
	t.Helper()
	result, err := Import([]File{file}, Options{WithSecrets: true})
	if err != nil {
		return "error: " + err.Error()
	}
	return encoded(t, result) + remarks(result)
}

func leavesOf(n *node) []*node {
	children := n.children()
	if len(children) == 0 {
		return []*node{n}
	}
	var leaves []*node
	for _, child := range children {
		leaves = append(leaves, leavesOf(child)...)
	}
	return leaves
}

func encodeWithout(t *testing.T, documents []*node, leaf *node) []byte {
	t.Helper()
	var content []byte
	for _, document := range documents {
		asJSON, err := json.Marshal(without(document, leaf))
		if err != nil {
			t.Fatal(err)
		}
		asYAML, err := yaml.JSONToYAML(asJSON)
		if err != nil {
			t.Fatal(err)
		}
		content = append(append(content, "---\n"...), asYAML...)
	}
	return content
}

func without(n, leaf *node) any {
	switch n.kind {
	case kindObject:
		object := map[string]any{}
		for key, field := range n.fields {
			if field != leaf {
				object[key] = without(field, leaf)
			}
		}
		return object
	case kindList:
		list := []any{}
		for _, item := range n.items {
			if item != leaf {
				list = append(list, without(item, leaf))
			}
		}
		return list
	default:
		return n.any()
	}
}

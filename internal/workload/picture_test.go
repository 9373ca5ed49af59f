package workload

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

const picture = "../../docs/pictures/architecture.svg"

// The names in the picture of the architecture are those of the code, and those that readers look for are in it.
func TestNamesInThePicture(t *testing.T) {
	known := map[string]bool{ // and whether the picture has to have it
		mcpv1alpha1.ContainerAdapter:               true,
		mcpv1alpha1.ContainerServer:                true,
		strconv.Itoa(mcpv1alpha1.AdapterPort):      true,
		strconv.Itoa(mcpv1alpha1.AdapterAdminPort): true,
		strconv.Itoa(mcpv1alpha1.AdapterPeerPort):  true,
		ownerKind(t):          true,
		managerName(t):        true,
		clientPath(t):         true,
		"internal/controller": true,
		"internal/prober":     true,
		filepath.Base(directory(t, "cmd/launcher")): true,
		plugin(directory(t, "cmd/kubectl-mcp")):     true,
		"kubectl apply":                             true, // not ours
	}
	for _, owned := range AllOwned() {
		known[owned.Kind.Kind] = slices.Contains([]string{"Deployment", "Service"}, owned.Kind.Kind)
	}
	found := map[string]bool{}
	for _, name := range codeIn(t, picture) {
		found[name] = true
		if _, ok := known[name]; !ok {
			t.Errorf("the picture names %q, which the code does not have", name)
		}
		if strings.Contains(name, "internal/") {
			directory(t, name)
		}
	}
	for name, isNeeded := range known {
		if isNeeded && !found[name] {
			t.Errorf("the picture does not name %q", name)
		}
	}
}

// What the picture says to those who do not see it has the same ports and containers.
func TestPictureForReadersWhoDoNotSeeIt(t *testing.T) {
	text, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "<desc")
	description, _, _ := strings.Cut(rest, "</desc>")
	for _, name := range []string{
		mcpv1alpha1.ContainerAdapter, mcpv1alpha1.ContainerServer, strconv.Itoa(mcpv1alpha1.AdapterPort),
		strconv.Itoa(mcpv1alpha1.AdapterAdminPort), strconv.Itoa(mcpv1alpha1.AdapterPeerPort),
	} {
		if !strings.Contains(description, name) {
			t.Errorf("the description does not name %s", name)
		}
	}
}

// codeIn are the names that a picture shows in the font of code.
func codeIn(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	isCode := false
	for decoder := xml.NewDecoder(file); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			isCode = slices.ContainsFunc(token.Attr, func(a xml.Attr) bool {
				return a.Name.Local == "class" && slices.Contains(strings.Fields(a.Value), "code")
			})
		case xml.EndElement:
			isCode = false
		case xml.CharData:
			if isCode {
				names = append(names, split(string(token))...)
			}
		}
	}
}

// split gives the names of a list, which ends with an ellipsis if there are more.
func split(list string) (names []string) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(name), "…")); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func ownerKind(t *testing.T) string {
	t.Helper()
	return controllerRef(&mcpv1alpha1.MCPServer{}).Kind
}

// clientPath is the path of the URL of every server.
func clientPath(t *testing.T) string {
	t.Helper()
	server := &mcpv1alpha1.MCPServer{}
	server.Name, server.Namespace = "a", "b"
	return strings.TrimPrefix(URL(server), "http://a.b.svc")
}

// managerName is what the manager's Deployment is called after an installation.
func managerName(t *testing.T) string {
	t.Helper()
	return setting(t, "config/default/kustomization.yaml", "namePrefix: ") + setting(t, "config/manager/manager.yaml", "  name: ")
}

// setting is the value of the first line of a file that begins in some way.
func setting(t *testing.T, path, prefix string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("%s has no %q", path, prefix)
	return ""
}

// directory fails if a directory of the repository is not there, and returns its name.
func directory(t *testing.T, path string) string {
	t.Helper()
	if info, err := os.Stat(filepath.Join("../..", path)); err != nil || !info.IsDir() {
		t.Errorf("there is no directory %s: %v", path, err)
	}
	return path
}

// plugin is how a plugin of kubectl is called.
func plugin(program string) string {
	return strings.ReplaceAll(filepath.Base(program), "-", " ")
}

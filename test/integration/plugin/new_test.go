package plugin

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

// The API server accepts everything that new prints, as it is printed.
func TestNewIsAccepted(t *testing.T) {
	namespace := newNamespace(t, "new")
	sources := map[string][]string{
		"stdio":                       {"--image=registry.example/team/tickets:1.4", "--transport=stdio"},
		"streamable-http":             {"--image=tickets@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "--transport=streamable-http", "--port=3000"},
		"streamable-http with a path": {"--image=registry.example:5000/tickets", "--transport=streamable-http", "--port=1", "--path=/api/mcp"},
		"sse":                         {"--image=tickets", "--transport=sse", "--port=65535"},
		"sse with a path":             {"--image=tickets", "--transport=sse", "--port=8000", "--path=/events"},
		"npm":                         {"--package=npm:@acme/search@2.1.0"},
		"pypi":                        {"--package=pypi:mcp-search@2.1.0", "--transport=stdio"},
	}
	for source, flags := range sources {
		for extra, more := range map[string][]string{
			"bare":      nil,
			"variables": {"--env=A=b", "--env=EMPTY=", "--secret-env=TOKEN", "--secret-env=USER", "--secret-env=PROXY=proxy.settings/url"},
			"replicas":  {"--replicas=0"},
			"words":     {"--", "node", "--stdio"},
		} {
			t.Run(source+", "+extra, func(t *testing.T) {
				got := kubectlMCP(t, kubeconfig, table.Screen{}, slices.Concat([]string{"new", "tickets", "-n", namespace}, flags, more)...)
				if got.code != 0 {
					t.Fatalf("exit code %d: %s", got.code, got.errOut)
				}
				objects := documents(t, got.out)
				if want := 1 + strings.Count(got.out, "kind: Secret\n"); len(objects) != want || want == 1 && extra == "variables" {
					t.Errorf("%d objects, want %d:\n%s", len(objects), want, got.out)
				}
				for _, object := range objects {
					strict := client.WithFieldValidation(admin, "Strict")
					if err := strict.Create(t.Context(), object, client.DryRunAll); err != nil {
						t.Errorf("refused: %v\n%s", err, got.out)
					}
				}
			})
		}
	}
}

// documents reads YAML as kubectl apply does.
func documents(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewBufferString(text), len(text))
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}

// new needs no cluster. It prints nothing unless everything is right.
func TestNewFailures(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"nothing": {nil, "error: missing: NAME, --image, --transport\n" +
			"For example: kubectl mcp new tickets --image registry.example/team/tickets:1.4 --transport stdio\n"},
		"no port": {[]string{"tickets", "--image=tickets", "--transport=sse"}, "error: missing: --port\n" +
			"For example: kubectl mcp new tickets --image registry.example/team/tickets:1.4 --transport stdio\n"},
		"a wrong flag": {[]string{"tickets", "--image=tickets", "--transport=stdio", "--replicas=-1"}, "error: --replicas \"-1\": it must be a number from 0 to 1000\n" +
			"See kubectl mcp new --help\n"},
		"no number": {[]string{"tickets", "--port=http"}, "error: invalid argument \"http\" for \"--port\" flag: strconv.ParseInt: parsing \"http\": invalid syntax\n" +
			"See kubectl mcp new --help\n"},
		"a URL": {[]string{"tickets", "--url=https://mcp.example"}, "error: unknown flag: --url\nSee kubectl mcp new --help\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := kubectlMCP(t, "absent", table.Screen{}, append([]string{"new"}, test.args...)...)
			if diff := cmp.Diff(result{1, "", test.want}, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

package workload

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// The content of the document does not change the pods: neither the template nor the
// inputs that decide whether the manager renders it again.
func TestSettingsAreNotInTheTemplate(t *testing.T) {
	in := readInput(t, "everything")
	in.Server.Generation = 7
	template := func() (*Inputs, []byte) {
		rendered, err := PodTemplate(in)
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := json.Marshal(rendered)
		if err != nil {
			t.Fatal(err)
		}
		return new(InputsOf(in.Server, "r")), encoded
	}
	inputs, pods := template()
	before := Settings(in.Server, in.ClusterDomain)
	in.Server.Generation = 8
	in.Server.Spec.Adapter.AllowedHosts = []mcpv1alpha1.Host{"other.example"}
	in.Server.Spec.Adapter.AllowedOrigins = []mcpv1alpha1.Origin{"https://other.example"}
	in.Server.Spec.Adapter.Verbosity = new(int32(3))
	in.ClusterDomain = "other.local"
	after := Settings(in.Server, in.ClusterDomain)

	// Every member of the document has changed, so none is left out of the claim.
	one, other := reflect.ValueOf(before), reflect.ValueOf(after)
	for i := range one.NumField() {
		if name := one.Type().Field(i).Name; name != "Version" && reflect.DeepEqual(one.Field(i).Interface(), other.Field(i).Interface()) {
			t.Errorf("%s has not changed: add it to this test", name)
		}
	}
	if nextInputs, next := template(); nextInputs.Hash != inputs.Hash || !bytes.Equal(pods, next) {
		t.Errorf("inputs %s after %s; template (-before +after):\n%s", nextInputs.Content, inputs.Content, cmp.Diff(string(pods), string(next)))
	}
}

// Clients that log in at a URL of auth.resources ask for its host, so it is allowed. No resource allows all.
func TestHostsOfResources(t *testing.T) {
	server := &mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "echo"}}
	service := allowedHosts(server, "")
	tests := map[string]struct {
		resources []mcpv1alpha1.ResourceURL
		hosts     []mcpv1alpha1.Host
		want      []string
	}{
		"none":             {nil, nil, nil},
		"a name":           {[]mcpv1alpha1.ResourceURL{"https://echo.example.com/mcp"}, nil, []string{"echo.example.com"}},
		"with a port":      {[]mcpv1alpha1.ResourceURL{"https://Echo.example.com:8443/mcp"}, nil, []string{"echo.example.com"}},
		"the Service":      {[]mcpv1alpha1.ResourceURL{"http://echo.team.svc:8080/mcp"}, nil, nil},
		"twice":            {[]mcpv1alpha1.ResourceURL{"https://a.example", "https://a.example/mcp"}, []mcpv1alpha1.Host{"a.example", "b.example"}, []string{"a.example", "b.example"}},
		"everything":       {[]mcpv1alpha1.ResourceURL{"https://*/mcp", "https://*.example/mcp"}, nil, nil},
		"an address":       {[]mcpv1alpha1.ResourceURL{"http://10.0.0.1:80/mcp", "http://[fd00::1]/mcp"}, nil, nil},
		"no URL after all": {[]mcpv1alpha1.ResourceURL{"https://a%zz/mcp", "https://:80/mcp"}, nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server.Spec.Auth = &mcpv1alpha1.Auth{Resources: test.resources}
			server.Spec.Adapter.AllowedHosts = test.hosts
			if diff := cmp.Diff(append(slices.Clone(service), test.want...), allowedHosts(server, "")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The adapter takes what the API server takes: a document that it refuses would leave
// every pod without one.
func TestAdaptersTakeTheSettings(t *testing.T) {
	for _, name := range cases(t) {
		in := readInput(t, name)
		in.Server.Generation = 1
		want := Settings(in.Server, in.ClusterDomain)
		document, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := adapterapi.DecodeSettings([]byte(document.Text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

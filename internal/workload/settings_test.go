package workload

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// What is in the document changes nothing of the pods: neither the template nor what
// decides whether it is rendered anew.
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

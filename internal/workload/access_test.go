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

// accessOf is the access document of a case. The issuer partner was never reached.
func accessOf(in Input) adapterapi.Access {
	access := Access(in.Server, in.ClusterDomain, map[string]IssuerKeys{
		adapterapi.KubernetesIssuer: {Issuer: "https://cluster.example", Keys: []json.RawMessage{json.RawMessage(`{"kid":"one"}`), json.RawMessage(`{"kid":"two"}`)}},
		"corp":                      {Keys: []json.RawMessage{json.RawMessage(`{"kid":"three"}`)}},
	})
	access.Generation = 7
	return access
}

// The content of the document does not change the pods: neither the template nor the inputs that decide
// whether the manager renders it again. So a user can turn auth on and off without a restart.
func TestAccessIsNotInTheTemplate(t *testing.T) {
	in, with := readInput(t, "everything"), readInput(t, "auth")
	template := func() (Inputs, []byte) {
		rendered, err := PodTemplate(in)
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := json.Marshal(rendered)
		if err != nil {
			t.Fatal(err)
		}
		return InputsOf(in.Server, "r"), encoded
	}
	inputs, pods := template()
	before := accessOf(in)
	in.Server.Spec.Auth, in.Server.Spec.Access, in.Server.Spec.Audit = with.Server.Spec.Auth, with.Server.Spec.Access, with.Server.Spec.Audit
	after := accessOf(in)

	// Every member of the document has changed, so none is left out of the claim.
	one, other := reflect.ValueOf(before), reflect.ValueOf(after)
	for i := range one.NumField() {
		name := one.Type().Field(i).Name
		if name != "Version" && name != "Generation" && name != "Server" && reflect.DeepEqual(one.Field(i).Interface(), other.Field(i).Interface()) {
			t.Errorf("%s has not changed: add it to this test", name)
		}
	}
	if nextInputs, next := template(); nextInputs.Hash != inputs.Hash || !bytes.Equal(pods, next) {
		t.Errorf("inputs %s after %s; template (-before +after):\n%s", nextInputs.Content, inputs.Content, cmp.Diff(string(pods), string(next)))
	}
	if next := InputsOf(in.Server, "r"); !inputs.MatchSpec(in.Server) || next.Hash != inputs.Hash {
		t.Errorf("the template would be rendered again: %s", next.Content)
	}
}

// The adapter takes what the API server takes: a document that it refuses would leave every pod without
// one. That holds also before the manager knows anything of any issuer.
func TestAdaptersTakeTheAccess(t *testing.T) {
	key := testKey(t, "42")
	for _, name := range cases(t) {
		in := readInput(t, name)
		unknown := Access(in.Server, "", nil)
		unknown.Generation = 1
		closed := ClosedAccess(in.Server)
		closed.Generation = 1
		for _, want := range []adapterapi.Access{accessOf(in), unknown, closed} {
			document, err := want.Sign(key)
			if err != nil {
				t.Fatal(err)
			}
			got, err := adapterapi.Keyring{Current: key}.OpenAccess([]byte(document.Text))
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			again, err := got.Sign(key)
			if diff := cmp.Diff(document.Text, again.Text); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
			}
		}
	}
}

func TestAccess(t *testing.T) {
	server := func(change func(*mcpv1alpha1.MCPServerSpec)) *mcpv1alpha1.MCPServer {
		server := readInput(t, "minimal").Server
		change(&server.Spec)
		return server
	}
	for name, test := range map[string]struct {
		server *mcpv1alpha1.MCPServer
		want   adapterapi.Access
	}{
		"nothing": {
			server(func(*mcpv1alpha1.MCPServerSpec) {}),
			adapterapi.Access{Mode: adapterapi.AccessNone, Audit: adapterapi.AccessAudit{Level: adapterapi.AuditNone, WhenFull: adapterapi.AuditDrop}},
		},
		"the server checks tokens": {
			server(func(s *mcpv1alpha1.MCPServerSpec) { s.Auth = &mcpv1alpha1.Auth{Mode: mcpv1alpha1.AuthModeServer} }),
			adapterapi.Access{Mode: adapterapi.AccessOfServer, Audit: adapterapi.AccessAudit{Level: adapterapi.AuditNone, WhenFull: adapterapi.AuditDrop}},
		},
		"hidden tools without auth": {
			server(func(s *mcpv1alpha1.MCPServerSpec) {
				s.Access = &mcpv1alpha1.Access{Hidden: []mcpv1alpha1.NamePattern{"admin_*"}}
				s.Audit = &mcpv1alpha1.Audit{Level: mcpv1alpha1.AuditLevelMetadata}
			}),
			adapterapi.Access{
				Mode: adapterapi.AccessNone, Hidden: []string{"admin_*"},
				Audit: adapterapi.AccessAudit{Level: adapterapi.AuditMetadata, WhenFull: adapterapi.AuditDrop},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.want.Version = adapterapi.AccessVersion
			test.want.Server = adapterapi.AccessServer{Namespace: test.server.Namespace, Name: test.server.Name}
			if diff := cmp.Diff(test.want, Access(test.server, "", nil)); diff != "" {
				t.Errorf("document (-want +got):\n%s", diff)
			}
			if got, want := HasAccess(test.server), name != "nothing"; got != want {
				t.Errorf("HasAccess is %t", got)
			}
		})
	}
}

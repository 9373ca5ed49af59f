package status

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/argocd"
)

var update = flag.Bool("update", false, "write the test data of config/argocd")

const argocdDirectory = "../../../config/argocd"

// argocdCases are the objects of the test data for Argo CD: rows of the truth table, and what happens to them
// afterwards.
var argocdCases = map[string]struct {
	row  string
	then func(*mcpv1alpha1.MCPServer)
}{
	"created":                   {row: "everything works", then: func(s *mcpv1alpha1.MCPServer) { s.Generation, s.Status = 1, mcpv1alpha1.MCPServerStatus{} }},
	"starting":                  {row: "just created"},
	"healthy":                   {row: "everything works"},
	"healthy_and_not_reachable": {row: "the manager cannot dial"},
	"spec_changed":              {row: "everything works", then: func(s *mcpv1alpha1.MCPServer) { s.Generation++ }},
	"spec_corrected":            {row: "refused before anything ran", then: func(s *mcpv1alpha1.MCPServer) { s.Generation++ }},
	"refused":                   {row: "refused before anything ran"},
	"refused_while_it_serves":   {row: "refused while it runs"},
	"registry_silent":           {row: "the registry does not answer for a new image while the old one serves"},
	"server_exits_once":         {row: "the server exits for the first time"},
	"server_exits":              {row: "the server exits"},
	"suspending":                {row: "suspended, and a pod still runs"},
	"suspended":                 {row: "suspended"},
	"scaled_to_zero":            {row: "scaled to zero"},
}

// The objects that the health check of Argo CD is tested with are what the manager writes.
func TestTestDataOfArgoCD(t *testing.T) {
	directory := filepath.Join(argocdDirectory, "testdata")
	for name, test := range argocdCases {
		t.Run(name, func(t *testing.T) {
			row, ok := truthTable[test.row]
			if !ok {
				t.Fatalf("the truth table has no row %q", test.row)
			}
			o := working()
			row.change(o)
			o.then()
			server := o.Server
			server.TypeMeta = metav1.TypeMeta{APIVersion: mcpv1alpha1.SchemeGroupVersion.String(), Kind: "MCPServer"}
			server.CreationTimestamp = ago(0)
			if test.then != nil {
				test.then(server)
			}
			want, err := yaml.Marshal(server)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(directory, name+".yaml")
			if *update {
				if err := os.WriteFile(path, want, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v; go test ./internal/controller/status -update writes it", err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s is out of date; go test ./internal/controller/status -update writes it (-want +got):\n%s", path, diff)
			}
		})
	}
	files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil || len(files) != len(argocdCases) {
		t.Errorf("%d files for %d cases, %v", len(files), len(argocdCases), err)
	}
}

// Argo CD and tools that use kstatus agree, but that kstatus does not know servers that were stopped.
func TestArgoCDAgreesWithKstatus(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(argocdDirectory, "health.lua"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	check := func(t *testing.T, server *mcpv1alpha1.MCPServer) {
		t.Helper()
		encoded, err := json.Marshal(server)
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := json.Unmarshal(encoded, &object); err != nil {
			t.Fatal(err)
		}
		got, err := argocd.HealthOf(string(script), object)
		if err != nil {
			t.Fatalf("%s: %v", sum(server.Status), err)
		}
		want := map[string]string{"Failed": "Degraded", "InProgress": "Progressing", "Current": "Healthy"}[kstatus(server)]
		if want == "Healthy" && meta.FindStatusCondition(server.Status.Conditions, "Ready") == nil {
			want = "Suspended"
		}
		if got.Status != want || got.Message == "" {
			t.Fatalf("Argo CD says %q: %q, and kstatus %s, of generation %d of %d: %s", got.Status, got.Message, kstatus(server),
				server.Status.ObservedGeneration, server.Generation, sum(server.Status))
		}
		seen[want]++
	}

	for name, test := range truthTable {
		t.Run(name, func(t *testing.T) {
			o := working()
			test.change(o)
			o.then()
			check(t, o.Server)
			o.Server.Generation++
			check(t, o.Server)
		})
	}
	random := rand.New(rand.NewPCG(1, 5))
	for range 1000 {
		o := randomObserved(random)
		o.then()
		check(t, o.Server)
	}
	for _, status := range []string{"Degraded", "Progressing", "Healthy", "Suspended"} {
		if seen[status] < 10 {
			t.Errorf("%s came up %d times", status, seen[status])
		}
	}
}

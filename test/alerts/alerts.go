// Package alerts has the metrics that the alerts of config/prometheus name, for tests of the packages that export them.
package alerts

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// name is a metric. test/chart parses the expressions and checks that they name no others.
var name = regexp.MustCompile(`\b(slipway_\w+|leader_election_master_status)\b`)

// Metrics returns the metrics in the expressions of a file for which a function holds. There is one at least.
func Metrics(t *testing.T, file string, is func(metric string) bool) []string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rule struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Expr string `json:"expr"`
				} `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(content, &rule); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, group := range rule.Spec.Groups {
		for _, rule := range group.Rules {
			for _, metric := range name.FindAllString(rule.Expr, -1) {
				if is(metric) {
					found[metric] = true
				}
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("no alert in %s has such a metric", file)
	}
	return slices.Sorted(maps.Keys(found))
}

// OfAdapters says whether a metric is one of adapters. The others are the manager's.
func OfAdapters(metric string) bool { return strings.HasPrefix(metric, "slipway_adapter_") }

// OfManagers says whether a metric is one of managers.
func OfManagers(metric string) bool { return !OfAdapters(metric) }

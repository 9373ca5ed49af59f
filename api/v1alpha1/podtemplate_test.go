package v1alpha1_test

import (
	"testing"

	"github.com/slipway-mcp/slipway/api/v1alpha1"
)

func TestIgnoresReferenceChanges(t *testing.T) {
	for name, test := range map[string]struct {
		template *v1alpha1.PodTemplate
		want     bool
	}{
		"left out":        {nil, false},
		"policy left out": {&v1alpha1.PodTemplate{}, false},
		"Restart":         {&v1alpha1.PodTemplate{OnReferenceChange: v1alpha1.ReferenceChangeRestart}, false},
		"Ignore":          {&v1alpha1.PodTemplate{OnReferenceChange: v1alpha1.ReferenceChangeIgnore}, true},
	} {
		if got := test.template.IgnoresReferenceChanges(); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

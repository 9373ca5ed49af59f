package config

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRequiredIn(t *testing.T) {
	production := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "stage", Operator: metav1.LabelSelectorOpIn, Values: []string{"production"}}}}
	tests := map[string]struct {
		auth Auth
		want string
	}{
		"default":  {Default().Auth, "none"},
		"none":     {Auth{Require: RequireNone}, "none"},
		"all":      {Auth{Require: RequireAll}, ""},
		"selector": {Auth{Require: RequireSelector, NamespaceSelector: production}, "stage in (production)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			selector, err := test.auth.RequiredIn()
			if err != nil {
				t.Fatal(err)
			}
			got := "none"
			if selector != nil {
				got = selector.String()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

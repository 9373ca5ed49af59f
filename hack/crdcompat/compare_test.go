package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const small = `
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Boat, plural: boats, shortNames: [bt]}
  versions:
  - name: v1
    served: true
    selectableFields: [{jsonPath: .spec.name}]
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            properties:
              name: {type: string, maxLength: 10, minLength: 1, default: x}
              kind: {type: string, enum: [Sail, Motor]}
              seats: {type: integer, minimum: 1, maximum: 9}
              weight: {type: integer}
              size:
                anyOf:
                - {type: integer}
              crew:
                type: array
                maxItems: 4
                items: {type: string, maxLength: 5}
              flags:
                type: object
                additionalProperties: {type: string}
            x-kubernetes-validations:
            - {rule: "self.seats > 1", message: too few seats}
`

func TestCompare(t *testing.T) {
	for name, test := range map[string]struct {
		old, new string // what to replace in the small CRD, and with what
		want     []string
	}{
		"nothing":               {"", "", nil},
		"a new field":           {"kind: {type", "color: {type: string, enum: [Red]}\n              kind: {type", nil},
		"a wider bound":         {"maximum: 9", "maximum: 10", nil},
		"no bound any more":     {"minimum: 1, ", "", nil},
		"another value":         {"[Sail, Motor]", "[Sail, Motor, Oar]", nil},
		"no enumeration":        {", enum: [Sail, Motor]", "", nil},
		"other words of a rule": {"message: too few seats", "message: other words", nil},
		"no rule any more": {`            x-kubernetes-validations:
            - {rule: "self.seats > 1", message: too few seats}
`, "", nil},
		"a field is gone":        {"seats:", "places:", []string{"v1.spec.seats: the field is gone"}},
		"another type":           {"seats: {type: integer", "seats: {type: string", []string{"v1.spec.seats: type was integer and is string"}},
		"a narrower maximum":     {"maximum: 9", "maximum: 8", []string{"v1.spec.seats: the maximum was 9 and is 8"}},
		"a narrower minimum":     {"minimum: 1", "minimum: 2", []string{"v1.spec.seats: the minimum was 1 and is 2"}},
		"a new bound":            {"kind: {type: string", "kind: {type: string, maxLength: 3", []string{"v1.spec.kind: the maximal length was none and is 3"}},
		"a new bound of nothing": {"kind: {type: string", "kind: {type: string, minLength: 0", nil},
		"a new minimum":          {"weight: {type: integer}", "weight: {type: integer, minimum: 0}", []string{"v1.spec.weight: the minimum was none and is 0"}},
		"shorter items":          {"maxLength: 5", "maxLength: 4", []string{"v1.spec.crew[]: the maximal length was 5 and is 4"}},
		"fewer items":            {"maxItems: 4", "maxItems: 3", []string{"v1.spec.crew: the maximal number of items was 4 and is 3"}},
		"other values of a map":  {"additionalProperties: {type: string}", "additionalProperties: {type: integer}", []string{"v1.spec.flags{}: type was string and is integer"}},
		"a value is gone":        {"[Sail, Motor]", "[Sail]", []string{`v1.spec.kind: the value "Motor" is gone`}},
		"a new enumeration":      {"name: {type: string", "name: {type: string, enum: [a]", []string{`v1.spec.name: only "a" are allowed now`}},
		"a new pattern":          {"name: {type: string", "name: {type: string, pattern: a+", []string{`v1.spec.name: the pattern was "" and is "a+"`}},
		"a required field":       {"            properties:\n              name", "            required: [name]\n            properties:\n              name", []string{"v1.spec.name: the field is required now"}},
		"another rule":           {"self.seats > 1", "self.seats > 2", []string{"v1.spec: a rule is new or has changed: too few seats"}},
		"another default":        {"default: x", "default: z", []string{`v1.spec.name: default was "x" and is "z"`}},
		"no default":             {", default: x", "", []string{`v1.spec.name: default was "x" and is `}},
		"a version":              {"name: v1", "name: v2", []string{"v1: the version is not served any more"}},
		"not served":             {"served: true", "served: false", []string{"v1: the version is not served any more"}},
		"scope":                  {"Namespaced", "Cluster", []string{"scope was Namespaced and is Cluster"}},
		"a short name":           {"[bt]", "[]", []string{"short name bt is gone"}},
		"a selectable field":     {".spec.name}", ".spec.kind}", []string{"v1: selectable field .spec.name is gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.old != "" && !strings.Contains(small, test.old) {
				t.Fatalf("%q is not in the CRD", test.old)
			}
			got := compare(parse(t, small), parse(t, strings.Replace(small, test.old, test.new, 1)))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func parse(t *testing.T, text string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(text), crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

func TestCompareAlternatives(t *testing.T) {
	got := compare(parse(t, small), parse(t, strings.Replace(small, "- {type: integer}", "- {type: boolean}", 1)))
	if len(got) != 1 || !strings.HasPrefix(got[0], "v1.spec.size: alternatives was ") {
		t.Errorf("got %q", got)
	}
}

// A file that cannot be read is an error, and not a CRD without problems.
func TestCompareFiles(t *testing.T) {
	if _, err := compareFiles("none.yaml", "none.yaml"); err == nil {
		t.Error("files that are not there have no problems")
	}
	if problems, err := compareFiles("baseline.yaml", "../../config/crd/bases/mcp.slipway.dev_mcpservers.yaml"); err != nil || len(problems) > 0 {
		t.Errorf("the CRD breaks its baseline: %q, %v", problems, err)
	}
}

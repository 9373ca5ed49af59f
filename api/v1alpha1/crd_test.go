package v1alpha1_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-mcp/slipway/api/v1alpha1"
)

// A client-side `kubectl apply` keeps the whole object in an annotation, and all
// annotations together may have 256 KiB.
const maxCRDBytes = 200 << 10

func readCRD(t *testing.T) (*apiextensionsv1.CustomResourceDefinition, []byte) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", "mcp.slipway.dev_mcpservers.yaml"))
	if err != nil {
		t.Fatalf("read CRD: %v", err)
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		t.Fatalf("convert CRD to JSON: %v", err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(asJSON, crd); err != nil {
		t.Fatalf("decode CRD: %v", err)
	}
	return crd, asJSON
}

func TestCRDFitsClientSideApply(t *testing.T) {
	if _, asJSON := readCRD(t); len(asJSON) >= maxCRDBytes {
		t.Errorf("CRD has %d bytes of JSON, want less than %d", len(asJSON), maxCRDBytes)
	}
}

// The API server refuses a CRD whose validation rules could cost too much; this
// runs the same estimate without one.
func TestCRDIsValidAndRulesAreCheap(t *testing.T) {
	crd, _ := readCRD(t)
	internal := &apiextensions.CustomResourceDefinition{}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
		t.Fatalf("convert CRD: %v", err)
	}
	// The API server fills this in when it stores a new CRD.
	internal.Status.StoredVersions = []string{v1alpha1.SchemeGroupVersion.Version}
	for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
		t.Errorf("validate CRD: %v", err)
	}
}

// Every list has a listType and a maximum, every map and string a maximum, every
// number a minimum, and every description starts with its field's name. Types of
// k8s.io/api and apimachinery are left as they are.
func TestCRDFieldsAreBoundedAndDocumented(t *testing.T) {
	crd, _ := readCRD(t)
	for _, version := range crd.Spec.Versions {
		root := version.Schema.OpenAPIV3Schema
		w := fieldWalker{t: t}
		w.structFields(reflect.TypeFor[v1alpha1.MCPServer](), root, "")
		if w.fields < 100 {
			t.Errorf("looked at %d fields, want at least 100: the walk no longer reaches the whole API", w.fields)
		}
	}
}

// A quantity that the API server lets through and the parser refuses would stop
// every list of the kind; hack/crdfit tightens the pattern for that.
func TestQuantitiesCanBeDecoded(t *testing.T) {
	crd, _ := readCRD(t)
	patterns := map[string]int{}
	collectQuantities(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, patterns)
	if len(patterns) != 1 {
		t.Fatalf("quantities have %d patterns, want one: %v", len(patterns), patterns)
	}
	for pattern, places := range patterns {
		if places < 5 {
			t.Errorf("found %d quantities, want at least 5: the search no longer finds them", places)
		}
		expression := regexp.MustCompile(pattern)
		for text, want := range map[string]bool{
			"1": true, "100m": true, "1.5Gi": true, ".5": true, "5.": true, "1e3": true, "-1E-3": true, "+1k": true, "1Ei": true, "12E": true,
			"1e1.5": false, "1e99999999999999999999": false, "-1e5.": false, "1e": false, "": false, "1KiB": false, "1e.5": false,
		} {
			if expression.MatchString(text) != want {
				t.Errorf("%q: matched %v, want %v", text, !want, want)
			}
			if _, err := resource.ParseQuantity(text); want && err != nil {
				t.Errorf("%q matches and cannot be decoded: %v", text, err)
			}
		}
	}
}

func collectQuantities(schema *apiextensionsv1.JSONSchemaProps, into map[string]int) {
	if schema.XIntOrString && schema.Pattern != "" {
		into[schema.Pattern]++
	}
	for _, property := range schema.Properties {
		collectQuantities(&property, into)
	}
	if schema.Items != nil {
		collectQuantities(schema.Items.Schema, into)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		collectQuantities(schema.AdditionalProperties.Schema, into)
	}
}

// fieldWalker goes through Go types and schema side by side: the schema has the
// bounds, the Go types say which fields are ours.
type fieldWalker struct {
	t      *testing.T
	fields int
}

var ownPackage = reflect.TypeFor[v1alpha1.MCPServer]().PkgPath()

func (w *fieldWalker) structFields(typ reflect.Type, schema *apiextensionsv1.JSONSchemaProps, path string) {
	for field := range typ.Fields() {
		if field.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		property, ok := schema.Properties[name]
		if !ok {
			w.t.Errorf("%s.%s: not in the CRD", path, name)
			continue
		}
		w.fields++
		fieldPath := path + "." + name
		if !strings.HasPrefix(property.Description, name+" ") {
			w.t.Errorf("%s: description %q, want it to start with the field's name", fieldPath, property.Description)
		}
		w.value(field.Type, &property, fieldPath)
	}
}

func (w *fieldWalker) value(typ reflect.Type, schema *apiextensionsv1.JSONSchemaProps, path string) {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	// The scale subresource refuses negative replicas; a minimum of our own
	// would say it twice.
	if missing := missingBound(typ, schema); missing != "" && path != ".spec.replicas" {
		w.t.Errorf("%s: %s", path, missing)
	}
	switch {
	case typ.Kind() == reflect.Slice:
		w.value(typ.Elem(), schema.Items.Schema, path+"[]")
	case typ.Kind() == reflect.Map:
		w.value(typ.Elem(), schema.AdditionalProperties.Schema, path+"{}")
	case typ.Kind() == reflect.Struct && typ.PkgPath() == ownPackage:
		w.structFields(typ, schema, path)
	}
}

// missingBound says what a field of this type must have in the schema and has not.
func missingBound(typ reflect.Type, schema *apiextensionsv1.JSONSchemaProps) string {
	kind := typ.Kind()
	if typ == reflect.TypeFor[metav1.Duration]() {
		kind = reflect.String // which is what it is in JSON
	}
	switch kind {
	case reflect.String:
		return unless(schema.MaxLength != nil || len(schema.Enum) > 0, "a string with neither maxLength nor enum")
	case reflect.Slice:
		return unless(schema.XListType != nil && schema.MaxItems != nil, "a list without listType or maxItems")
	case reflect.Map:
		return unless(schema.MaxProperties != nil, "a map without maxProperties")
	case reflect.Int32, reflect.Int64:
		return unless(schema.Minimum != nil, "a number without minimum")
	case reflect.Struct, reflect.Bool:
		return ""
	default:
		return "the test has no rule for the bound of a " + typ.String()
	}
}

func unless(ok bool, complaint string) string {
	if ok {
		return ""
	}
	return complaint
}

// A reader of the field must not take one process for each session for a security boundary.
func TestIsolationSaysWhatItIsNot(t *testing.T) {
	crd, _ := readCRD(t)
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	text := spec.Properties["session"].Properties["isolation"].Description
	if !strings.Contains(strings.Join(strings.Fields(text), " "), "This is not a security boundary: the processes of a pod run as one user") {
		t.Errorf("session.isolation is described by %q", text)
	}
}

package manifest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// validator does what an API server does with an MCPServer before it stores it.
type validator struct {
	structural *schema.Structural
	schema     apiservervalidation.SchemaValidator
	rules      *cel.Validator
}

// newValidator is called once: to compile the rules takes long.
var newValidator = sync.OnceValues(func() (*validator, error) {
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "crd", "bases", "mcp.slipway.dev_mcpservers.yaml"))
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(content, crd); err != nil {
		return nil, err
	}
	internal := &apiextensions.JSONSchemaProps{}
	given := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(given, internal, nil); err != nil {
		return nil, err
	}
	v := &validator{}
	if v.structural, err = schema.NewStructural(internal); err != nil {
		return nil, err
	}
	if v.schema, _, err = apiservervalidation.NewSchemaValidator(internal); err != nil {
		return nil, err
	}
	const perCall = 10000000 // as the API server has it
	v.rules = cel.NewValidator(v.structural, true, perCall)
	return v, nil
})

// refusals are the reasons for which an API server would refuse the objects of a result. It also compares
// what Encode writes with the objects.
func refusals(t testing.TB, result Result) []error {
	t.Helper()
	v, err := newValidator()
	if err != nil {
		t.Fatal(err)
	}
	var refused []error
	names := map[string]bool{}
	for _, object := range result.Objects {
		if server, isServer := object.(*mcpv1alpha1.MCPServer); isServer {
			key := server.Namespace + "/" + server.Name
			if names[key] {
				refused = append(refused, fmt.Errorf("%s is there twice", key))
			}
			names[key] = true
		}
		content, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		digest := sha256.Sum256(append(content, fmt.Sprintf("%T", object)...))
		if _, found := accepted.Load(digest); found {
			continue
		}
		refusedObject := v.refusals(t, object)
		if len(refusedObject) == 0 {
			accepted.Store(digest, true)
		}
		refused = append(refused, refusedObject...)
	}
	return refused
}

// accepted has the digests of objects that an API server would take: the mutants of an input have most of
// their objects in common.
var accepted sync.Map

func (v *validator) refusals(t testing.TB, object runtime.Object) (refused []error) {
	t.Helper()
	document, err := encode(object)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		t.Fatalf("the YAML cannot be read back: %v\n%s", err, document)
	}
	switch object := object.(type) {
	case *mcpv1alpha1.MCPServer:
		for _, err := range v.refuse(t, asJSON) {
			refused = append(refused, fmt.Errorf("MCPServer %s: %w", object.Name, err))
		}
	case *corev1.Secret:
		for _, err := range refuseSecret(object) {
			refused = append(refused, fmt.Errorf("Secret %s: %w", object.Name, err))
		}
	default:
		t.Fatalf("unexpected %T", object)
	}
	return refused
}

func (v *validator) refuse(t testing.TB, asJSON []byte) field.ErrorList {
	t.Helper()
	var object map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &object); err != nil {
		t.Fatal(err)
	}
	typed := &mcpv1alpha1.MCPServer{}
	if err := json.Unmarshal(asJSON, typed); err != nil {
		t.Fatal(err)
	}
	unknown := pruning.PruneWithOptions(object, v.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	var refused field.ErrorList
	for _, path := range unknown {
		refused = append(refused, field.Invalid(field.NewPath(path), "", "unknown field"))
	}
	defaulting.Default(object, v.structural)
	refused = append(refused, apiservervalidation.ValidateCustomResource(nil, object, v.schema)...)
	refused = append(refused, listtype.ValidateListSetsAndMaps(nil, v.structural, object)...)
	refused = append(refused, refuseMetadata(typed.ObjectMeta)...)
	if len(refused) == 0 { // rules are not asked about objects that do not fit the schema
		broken, _ := v.rules.Validate(context.Background(), nil, v.structural, object, nil, math.MaxInt32)
		refused = append(refused, broken...)
	}
	return refused
}

func refuseMetadata(metadata metav1.ObjectMeta) field.ErrorList {
	if metadata.Namespace == "" {
		metadata.Namespace = metav1.NamespaceDefault // as kubectl does it
	}
	return validation.ValidateObjectMeta(&metadata, true, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
}

// refuseSecret has those rules of Secrets that a name or value of the input could break.
func refuseSecret(secret *corev1.Secret) field.ErrorList {
	refused := refuseMetadata(secret.ObjectMeta)
	size := 0
	for key, value := range secret.StringData {
		size += len(value)
		if !isSecretKey(key) {
			refused = append(refused, field.Invalid(field.NewPath("stringData"), key, "no key"))
		}
	}
	if size > corev1.MaxSecretSize {
		refused = append(refused, field.TooLong(field.NewPath("stringData"), "", corev1.MaxSecretSize))
	}
	return refused
}

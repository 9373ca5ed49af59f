package manifest

import (
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Encode writes objects as YAML documents, with sorted fields and without those that only a cluster
// fills in.
func Encode(w io.Writer, objects []runtime.Object) error {
	for number, object := range objects {
		document, err := encode(object)
		if err != nil {
			return err
		}
		if number > 0 {
			document = append([]byte("---\n"), document...)
		}
		if _, err := w.Write(document); err != nil {
			return fmt.Errorf("write manifest: %w", err)
		}
	}
	return nil
}

func encode(object runtime.Object) ([]byte, error) {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	var fields map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(encoded, &fields); err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	delete(fields, "status")
	if metadata, found := fields["metadata"].(map[string]any); found {
		delete(metadata, "creationTimestamp")
	}
	document, err := yaml.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	return document, nil
}

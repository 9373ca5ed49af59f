package report

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// referred reads a Secret or a ConfigMap that a server refers to: for what must not be in logs. It is nil if it is not
// there, or cannot be read, which is noted.
func (c *collector) referred(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName) (*unstructured.Unstructured, error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(kind)
	err := c.API.Get(ctx, key, found)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		c.lackObject(kind.Kind+"s", key, err)
		c.lack("values of "+kind.Kind+" "+key.String()+" in logs and events", constantError("the "+kind.Kind+" cannot be read, so they are not looked for and not removed there"))
		return nil, nil
	}
	return found, nil
}

// learnConfigMaps learns the values of variables that come from ConfigMaps. The ConfigMaps are a user's own, so the
// report does not have them.
func (c *collector) learnConfigMaps(ctx context.Context, server *mcpv1alpha1.MCPServer, values *Values) error {
	variables := variablesFrom(&server.Spec)
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		found, err := c.referred(ctx, configMapKind, types.NamespacedName{Namespace: server.Namespace, Name: name})
		if err != nil {
			return err
		}
		if found == nil {
			continue
		}
		data, _, _ := unstructured.NestedStringMap(found.Object, "data")
		for key, value := range data {
			if variables[name][key] || variables[name][everyKey] {
				values.Add(value)
			}
		}
	}
	return nil
}

// everyKey stands for all keys of a ConfigMap. No key is empty.
const everyKey = ""

// variablesFrom are the keys that variables of a spec come from, by the name of the ConfigMap. Other keys of it may be
// files, whose lines are no values.
func variablesFrom(spec *mcpv1alpha1.MCPServerSpec) map[string]map[string]bool {
	found := map[string]map[string]bool{}
	add := func(name, key string) {
		if found[name] == nil {
			found[name] = map[string]bool{}
		}
		found[name][key] = true
	}
	for _, variable := range spec.Env {
		if variable.ValueFrom != nil && variable.ValueFrom.ConfigMapKeyRef != nil {
			add(variable.ValueFrom.ConfigMapKeyRef.Name, variable.ValueFrom.ConfigMapKeyRef.Key)
		}
	}
	for _, source := range spec.EnvFrom {
		if source.ConfigMapRef != nil {
			add(source.ConfigMapRef.Name, everyKey)
		}
	}
	delete(found, "")
	return found
}

// secretsOf are the names of the Secrets that a spec refers to, sorted.
func secretsOf(spec *mcpv1alpha1.MCPServerSpec) []string {
	names := map[string]bool{}
	for _, variable := range spec.Env {
		if variable.ValueFrom != nil && variable.ValueFrom.SecretKeyRef != nil {
			names[variable.ValueFrom.SecretKeyRef.Name] = true
		}
	}
	for _, source := range spec.EnvFrom {
		if source.SecretRef != nil {
			names[source.SecretRef.Name] = true
		}
	}
	for _, reference := range spec.ImagePullSecrets {
		names[reference.Name] = true
	}
	for _, volume := range spec.Volumes {
		for _, name := range secretsIn(volume) {
			names[name] = true
		}
	}
	delete(names, "")
	return sortedKeys(names)
}

func secretsIn(volume corev1.Volume) []string {
	var names []string
	if volume.Secret != nil {
		names = append(names, volume.Secret.SecretName)
	}
	if volume.Projected != nil {
		for _, source := range volume.Projected.Sources {
			if source.Secret != nil {
				names = append(names, source.Secret.Name)
			}
		}
	}
	return names
}

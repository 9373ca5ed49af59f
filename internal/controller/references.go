package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/objectwatch"
)

// objectRef names a Secret, ConfigMap or ServiceAccount of a server's namespace.
type objectRef struct {
	Kind string
	Name string
}

func (o objectRef) String() string { return o.Kind + " " + o.Name }

// reference is one place of a spec that names another object.
type reference struct {
	objectRef
	Key      string // empty: all of it
	Optional bool
	Where    string // for people
	// OfIssuer is true of what the manager reads, and not the pods.
	OfIssuer bool
}

// referencesOf lists what a spec refers to: everything but the credentials of the registry.
func referencesOf(spec *mcpv1alpha1.MCPServerSpec) []reference {
	var found []reference
	add := func(kind, name, key string, optional *bool, where string) {
		if name != "" {
			found = append(found, reference{objectRef{kind, name}, key, optional != nil && *optional, where, false})
		}
	}
	if spec.ServiceAccountName != "" {
		add("ServiceAccount", spec.ServiceAccountName, "", nil, "serviceAccountName")
	}
	for i := range spec.Env {
		addVariable(&spec.Env[i], add)
	}
	for i, from := range spec.EnvFrom {
		where := fmt.Sprintf("envFrom[%d]", i)
		if from.SecretRef != nil {
			add("Secret", from.SecretRef.Name, "", from.SecretRef.Optional, where)
		}
		if from.ConfigMapRef != nil {
			add("ConfigMap", from.ConfigMapRef.Name, "", from.ConfigMapRef.Optional, where)
		}
	}
	for i := range spec.Volumes {
		addVolume(&spec.Volumes[i], add)
	}
	return append(found, issuerReferences(spec.Auth)...)
}

// issuerReferences are the certificates of issuers.
func issuerReferences(auth *mcpv1alpha1.Auth) []reference {
	if auth == nil {
		return nil
	}
	var found []reference
	for i := range auth.Issuers {
		if bundle := auth.Issuers[i].CABundle; bundle != nil {
			found = append(found, reference{objectRef{"ConfigMap", bundle.Name}, bundle.Key, false, "auth.issuers " + auth.Issuers[i].Name, true})
		}
	}
	return found
}

// addReference is called with each reference that is found.
type addReference func(kind, name, key string, optional *bool, where string)

func addVariable(variable *corev1.EnvVar, add addReference) {
	if variable.ValueFrom == nil {
		return
	}
	where := "env " + variable.Name
	if from := variable.ValueFrom.SecretKeyRef; from != nil {
		add("Secret", from.Name, from.Key, from.Optional, where)
	}
	if from := variable.ValueFrom.ConfigMapKeyRef; from != nil {
		add("ConfigMap", from.Name, from.Key, from.Optional, where)
	}
}

func addVolume(volume *corev1.Volume, add addReference) {
	where := "volume " + volume.Name
	addItems := func(kind, name string, items []corev1.KeyToPath, optional *bool) {
		if len(items) == 0 {
			add(kind, name, "", optional, where)
		}
		for _, item := range items {
			add(kind, name, item.Key, optional, where)
		}
	}
	if source := volume.Secret; source != nil {
		addItems("Secret", source.SecretName, source.Items, source.Optional)
	}
	if source := volume.ConfigMap; source != nil {
		addItems("ConfigMap", source.Name, source.Items, source.Optional)
	}
	if volume.Projected == nil {
		return
	}
	for _, source := range volume.Projected.Sources {
		if source.Secret != nil {
			addItems("Secret", source.Secret.Name, source.Secret.Items, source.Secret.Optional)
		}
		if source.ConfigMap != nil {
			addItems("ConfigMap", source.ConfigMap.Name, source.ConfigMap.Items, source.ConfigMap.Optional)
		}
	}
}

// checkReferences sees that what the spec refers to is there, and takes a digest of
// it. Values are read only when an object has changed since the last time.
func (r *Reconciler) checkReferences(ctx context.Context, s *state) error {
	references := referencesOf(&s.server.Spec)
	r.references.set(s.name, references, r.unfollow)
	if s.keys == nil || len(references) == 0 {
		return nil
	}
	versions, err := r.versionsOf(ctx, s.name.Namespace, references)
	if err != nil {
		return err
	}
	checked, ok := r.references.recall(s.name, versions, s.keys.references)
	if !ok {
		if checked, err = r.readReferences(ctx, s, references); err != nil {
			return err
		}
		r.references.remember(s.name, versions, s.keys.references, checked)
	}
	if len(checked.missing) > 0 {
		s.refuse(mcpv1alpha1.ReasonReferenceNotFound, strings.Join(checked.missing, "; "))
	}
	if s.server.Spec.Rollout.OnReferenceChange != mcpv1alpha1.RolloutIgnore {
		s.references = checked.digest
	}
	return nil
}

// versionsOf is a text that changes when one of the objects, or what is wanted of
// them, does.
func (r *Reconciler) versionsOf(ctx context.Context, namespace string, references []reference) (string, error) {
	var text strings.Builder
	for _, ref := range references {
		version, err := r.watches[ref.Kind].Version(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name})
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "%s %q %q %t %t %s\n", ref.Kind, ref.Name, ref.Key, ref.Optional, ref.OfIssuer, version)
	}
	return text.String(), nil
}

// checkedReferences is what reading the referenced objects has brought.
type checkedReferences struct {
	digest  string   // of what pods read; empty if they read nothing
	missing []string // what is not there, and what to do
}

func (r *Reconciler) readReferences(ctx context.Context, s *state, references []reference) (checkedReferences, error) {
	contents := map[objectRef]map[string][]byte{} // nil: not there
	for _, ref := range references {
		if _, ok := contents[ref.objectRef]; ok {
			continue
		}
		content, err := r.readObject(ctx, types.NamespacedName{Namespace: s.name.Namespace, Name: ref.Name}, ref.Kind)
		if err != nil {
			return checkedReferences{}, err
		}
		contents[ref.objectRef] = content
	}
	var checked checkedReferences
	used := map[string][]byte{}
	for _, ref := range references {
		content := contents[ref.objectRef]
		if problem := ref.problem(content, s.name.Namespace); problem != "" {
			checked.missing = append(checked.missing, problem)
			continue
		}
		for key, value := range content {
			if !ref.OfIssuer && (ref.Key == "" || ref.Key == key) {
				used[ref.String()+"\x00"+key] = value
			}
		}
	}
	slices.Sort(checked.missing)
	checked.missing = slices.Compact(checked.missing)
	if !slices.ContainsFunc(references, func(ref reference) bool { return !ref.OfIssuer }) {
		return checked, nil // pods do not read the certificates of issuers, so none is replaced for them
	}
	canonical, err := json.Marshal(used) // with sorted keys
	if err != nil {
		return checkedReferences{}, fmt.Errorf("encode references of MCPServer %s: %w", s.name, err)
	}
	checked.digest = keyedDigest(s.keys.references, canonical)
	return checked, nil
}

// problem says what is missing of an object with this content, and what to do.
func (r reference) problem(content map[string][]byte, namespace string) string {
	_, hasKey := content[r.Key]
	switch {
	case r.Optional:
		return ""
	case content == nil:
		with := ""
		if r.Key != "" {
			with = fmt.Sprintf(" with the key %q", r.Key)
		}
		return fmt.Sprintf("%s, which %s refers to, does not exist in namespace %s: create it%s", r.objectRef, r.Where, namespace, with)
	case r.Key != "" && !hasKey:
		return fmt.Sprintf("%s has no key %q, which %s refers to: add it", r.objectRef, r.Key, r.Where)
	}
	return ""
}

// readObject returns the content of an object, or nil if there is none. That of a
// ServiceAccount is of no interest.
func (r *Reconciler) readObject(ctx context.Context, name types.NamespacedName, kind string) (map[string][]byte, error) {
	content := map[string][]byte{} // not nil, because an object without data exists, too
	switch kind {
	case "Secret":
		secret, err := find(ctx, r.Live, name, &corev1.Secret{})
		if err != nil || secret == nil {
			return nil, err
		}
		maps.Copy(content, secret.Data)
	case "ConfigMap":
		configMap, err := find(ctx, r.Live, name, &corev1.ConfigMap{})
		if err != nil || configMap == nil {
			return nil, err
		}
		for key, value := range configMap.Data {
			content[key] = []byte(value)
		}
		maps.Copy(content, configMap.BinaryData)
	case "ServiceAccount":
		version, err := r.watches[kind].Version(ctx, name)
		if err != nil || version == "" {
			return nil, err
		}
	}
	return content, nil
}

// pullSecretNames are the Secrets with the credentials of the registry that the spec
// names itself.
func pullSecretNames(spec *mcpv1alpha1.MCPServerSpec) []string {
	var names []string
	for _, ref := range spec.ImagePullSecrets {
		names = append(names, ref.Name)
	}
	slices.SortFunc(names, cmp.Compare)
	return names
}

// watchReferences makes the watches of what specs can refer to.
func (r *Reconciler) watchReferences(client metadata.Interface, log logr.Logger) {
	r.watches = map[string]*objectwatch.Watch{}
	for kind, resource := range map[string]string{"Secret": "secrets", "ConfigMap": "configmaps", "ServiceAccount": "serviceaccounts"} {
		r.watches[kind] = objectwatch.New(objectwatch.Options{
			Client: client, Resource: corev1.SchemeGroupVersion.WithResource(resource), Namespaces: r.Namespaces, Log: log,
			Changed: func(name types.NamespacedName) {
				for _, server := range r.references.usersOf(name.Namespace, objectRef{kind, name.Name}) {
					r.enqueue(server)
				}
			},
		})
	}
}

// unfollow stops following an object that no server refers to any more.
func (r *Reconciler) unfollow(unused namespacedRef) {
	r.watches[unused.Kind].Forget(types.NamespacedName{Namespace: unused.namespace, Name: unused.Name})
}

// CheckReferences is a readiness check: it fails until the manager notices changes of what
// specs refer to.
func (r *Reconciler) CheckReferences(*http.Request) error {
	for kind, watch := range r.watches {
		if !watch.HasSynced() {
			return fmt.Errorf("%ss are not watched yet: if this lasts, look in the manager's log for errors of the API server", kind)
		}
	}
	return nil
}

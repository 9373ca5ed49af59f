package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

func named(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

// Every place of a spec that can name another object is found.
func TestReferencesOf(t *testing.T) {
	spec := &mcpv1alpha1.MCPServerSpec{
		ServiceAccountName: "robot",
		ImagePullSecrets:   []corev1.LocalObjectReference{named("registry")}, // pods do not read it
		Env: []corev1.EnvVar{
			{Name: "PLAIN", Value: "x"},
			{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("s1"), Key: "k"}}},
			{Name: "B", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named("c1"), Key: "k", Optional: new(true)}}},
			{Name: "C", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		},
		EnvFrom: []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("s2")}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("c2"), Optional: new(false)}},
		},
		Volumes: []corev1.Volume{
			{Name: "v1", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s3"}}},
			{Name: "v2", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("c3"), Items: []corev1.KeyToPath{{Key: "a"}, {Key: "b"}}}}},
			{Name: "v3", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: named("s4"), Optional: new(true)}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("c4")}},
			}}}},
			{Name: "v4", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
		Auth: &mcpv1alpha1.Auth{Issuers: []mcpv1alpha1.Issuer{
			{Name: "known", URL: "https://known.example"},
			{Name: "corp", URL: "https://corp.example", CABundle: &mcpv1alpha1.ConfigMapKey{Name: "c5", Key: "ca.crt"}},
		}},
	}
	want := []reference{
		{objectRef{"ServiceAccount", "robot"}, "", false, "serviceAccountName", false},
		{objectRef{"Secret", "s1"}, "k", false, "env A", false},
		{objectRef{"ConfigMap", "c1"}, "k", true, "env B", false},
		{objectRef{"Secret", "s2"}, "", false, "envFrom[0]", false},
		{objectRef{"ConfigMap", "c2"}, "", false, "envFrom[1]", false},
		{objectRef{"Secret", "s3"}, "", false, "volume v1", false},
		{objectRef{"ConfigMap", "c3"}, "a", false, "volume v2", false},
		{objectRef{"ConfigMap", "c3"}, "b", false, "volume v2", false},
		{objectRef{"Secret", "s4"}, "", true, "volume v3", false},
		{objectRef{"ConfigMap", "c4"}, "", false, "volume v3", false},
		{objectRef{"ConfigMap", "c5"}, "ca.crt", false, "auth.issuers corp", true},
	}
	if diff := cmp.Diff(want, referencesOf(spec), cmpopts.EquateComparable(reference{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The index follows what servers refer to, and forgets them.
func TestReferenceIndex(t *testing.T) {
	var index referenceIndex
	var left []string
	unused := func(ref namespacedRef) { left = append(left, ref.Name) }
	one, two := types.NamespacedName{Namespace: "ns", Name: "one"}, types.NamespacedName{Namespace: "ns", Name: "two"}
	ref := func(name string) reference { return reference{objectRef: objectRef{"Secret", name}} }
	users := func(name string) int { return len(index.usersOf("ns", objectRef{"Secret", name})) }
	index.set(one, []reference{ref("a"), ref("b"), ref("a")}, unused)
	index.set(two, []reference{ref("a")}, unused)
	if users("a") != 2 || users("b") != 1 || len(index.usersOf("other", objectRef{"Secret", "a"})) != 0 || len(index.usersOf("ns", objectRef{"ConfigMap", "a"})) != 0 {
		t.Errorf("a has %d users and b %d", users("a"), users("b"))
	}
	key := adapterapi.NewKey()
	index.remember(one, "v1", key, checkedReferences{digest: "d"})
	if got, ok := index.recall(one, "v1", key); !ok || got.digest != "d" {
		t.Error("what was read is forgotten")
	}
	if _, ok := index.recall(one, "v2", key); ok {
		t.Error("what was read is taken for what is there now")
	}
	if _, ok := index.recall(one, "v1", adapterapi.NewKey()); ok {
		t.Error("a digest with another key is taken for one with this key")
	}
	index.set(one, []reference{ref("b")}, unused)
	index.forget(two, unused)
	if users("a") != 0 || users("b") != 1 || len(index.users) != 1 {
		t.Errorf("a has %d users, b %d, and %d objects are known", users("a"), users("b"), len(index.users))
	}
	if diff := cmp.Diff([]string{"a"}, slices.Compact(left)); diff != "" {
		t.Errorf("what no server refers to any more (-want +got):\n%s", diff)
	}
}

// A digest says nothing to those without the key, and depends on all that is read.
func TestKeyedDigest(t *testing.T) {
	key, other := adapterapi.NewKey(), adapterapi.NewKey()
	one := keyedDigest(key, []byte("content"))
	for name, other := range map[string]string{
		"another key":     keyedDigest(other, []byte("content")),
		"another content": keyedDigest(key, []byte("other")),
		"the key's name":  key.ID(),
	} {
		if one == other {
			t.Errorf("%s gives the same digest", name)
		}
	}
	if one != keyedDigest(key, []byte("content")) {
		t.Error("the same gives another digest")
	}
}

// The certificates of an issuer must be there, and are nothing that pods are replaced for.
func TestReferencesOfIssuers(t *testing.T) {
	configMap := func(name, content string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"k": content}}
	}
	ofPods := reference{objectRef{"ConfigMap", "settings"}, "", false, "envFrom[0]", false}
	ofIssuer := reference{objectRef{"ConfigMap", "ca"}, "k", false, "auth.issuers corp", true}
	key := adapterapi.NewKey()
	read := func(references []reference, objects ...client.Object) checkedReferences {
		r := New(Options{Live: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).Build()})
		s := newState(&mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}}, time.Now())
		s.keys = &serverKeys{references: key}
		checked, err := r.readReferences(t.Context(), s, references)
		if err != nil {
			t.Fatal(err)
		}
		return checked
	}
	alone := read([]reference{ofPods}, configMap("settings", "a"))
	one := read([]reference{ofPods, ofIssuer}, configMap("settings", "a"), configMap("ca", "one"))
	other := read([]reference{ofPods, ofIssuer}, configMap("settings", "a"), configMap("ca", "other"))
	if alone.digest == "" || one.digest != alone.digest || other.digest != alone.digest || len(one.missing) > 0 {
		t.Errorf("got %+v, %+v, %+v", alone, one, other)
	}
	if only := read([]reference{ofIssuer}, configMap("ca", "one")); only.digest != "" {
		t.Errorf("pods read nothing, and the digest is %q", only.digest)
	}
	if missing := read([]reference{ofIssuer}); len(missing.missing) != 1 {
		t.Errorf("nothing is missing: %+v", missing)
	}
}

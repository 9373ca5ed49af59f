package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// The copy has what the pods need, and nothing by which the manager would know them.
func TestCopyBare(t *testing.T) {
	ours := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "here", Name: name, Labels: map[string]string{mcpv1alpha1.LabelServer: "echo"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "MCPServer", Name: "echo", UID: "1"}},
		}
	}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "echo"}}, ServiceAccountName: "echo"}
	c := fake.NewClientBuilder().WithObjects(
		&appsv1.Deployment{ObjectMeta: ours("echo"), Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{mcpv1alpha1.LabelServer: "echo"}}, Spec: spec,
		}}},
		&corev1.Secret{ObjectMeta: ours("echo-keys"), Data: map[string][]byte{"key": {1}}},
		&corev1.ConfigMap{ObjectMeta: ours("echo-adapter"), Data: map[string]string{"config": "x"}},
		&corev1.ServiceAccount{ObjectMeta: ours("echo")},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: "kube-root-ca.crt"}}, // each namespace has its own
	).Build()
	got, err := copyBare(t.Context(), c, "here")
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	want := &bare{
		needs: []client.Object{
			&corev1.Secret{ObjectMeta: named("echo-keys"), Data: map[string][]byte{"key": {1}}},
			&corev1.ConfigMap{ObjectMeta: named("echo-adapter"), Data: map[string]string{"config": "x"}},
			&corev1.ServiceAccount{ObjectMeta: named("echo")},
		},
		pods: []*corev1.Pod{{ObjectMeta: named("echo"), Spec: spec}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(bare{})); diff != "" {
		t.Errorf("copy (-want +got):\n%s", diff)
	}
}

func TestAwaitReady(t *testing.T) {
	pod := func(name string, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
		}}
	}
	fails := errors.New("refused")
	for name, test := range map[string]struct {
		created error
		pods    []*corev1.Pod
		want    string
	}{
		"all ready":                {pods: []*corev1.Pod{pod("a", "True"), pod("b", "False"), pod("a", "True"), pod("b", "True")}},
		"one twice":                {pods: []*corev1.Pod{pod("a", "True"), pod("a", "True")}, want: "1 of 2 are ready"},
		"one could not be created": {created: fails, want: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			events, created := watch.NewFakeWithChanSize(len(test.pods), false), make(chan error, 1)
			for _, pod := range test.pods {
				events.Modify(pod)
			}
			if created <- test.created; test.created == nil {
				events.Stop()
			}
			err := awaitReady(events, created, 2)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

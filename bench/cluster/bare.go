package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// bare are the pods of servers, without the servers: the same containers and volumes, created
// directly, without operator, Deployment or ReplicaSet. The time that they take is that of the API
// server, the scheduler and the node.
type bare struct {
	needs []client.Object // what the pods refer to
	pods  []*corev1.Pod
}

// copyBare copies what the manager has made for the servers of a namespace.
func copyBare(ctx context.Context, c client.Client, namespace string) (*bare, error) {
	var deployments appsv1.DeploymentList
	var secrets corev1.SecretList
	var configMaps corev1.ConfigMapList
	var accounts corev1.ServiceAccountList
	for _, list := range []client.ObjectList{&deployments, &secrets, &configMaps, &accounts} {
		if err := c.List(ctx, list, client.InNamespace(namespace), client.HasLabels{mcpv1alpha1.LabelServer}); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	b := &bare{}
	for i := range secrets.Items {
		from := &secrets.Items[i]
		b.needs = append(b.needs, &corev1.Secret{ObjectMeta: nameOf(from), Type: from.Type, Data: from.Data})
	}
	for i := range configMaps.Items {
		from := &configMaps.Items[i]
		b.needs = append(b.needs, &corev1.ConfigMap{ObjectMeta: nameOf(from), Data: from.Data, BinaryData: from.BinaryData})
	}
	for i := range accounts.Items {
		from := &accounts.Items[i]
		b.needs = append(b.needs, &corev1.ServiceAccount{ObjectMeta: nameOf(from), AutomountServiceAccountToken: from.AutomountServiceAccountToken})
	}
	for i := range deployments.Items {
		from := &deployments.Items[i]
		b.pods = append(b.pods, &corev1.Pod{ObjectMeta: nameOf(from), Spec: from.Spec.Template.Spec})
	}
	return b, nil
}

// nameOf leaves out labels and owners: the manager takes no notice of the copy.
func nameOf(object client.Object) metav1.ObjectMeta { return metav1.ObjectMeta{Name: object.GetName()} }

// measure creates the pods in a namespace of their own, waits until all are ready, and deletes
// everything again. It returns the time from the first request to the last pod.
func (b *bare) measure(ctx context.Context, c client.WithWatch) (took time.Duration, err error) {
	namespace, err := createNamespace(ctx, c)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx), c, namespace)) }()
	ctx, cancel := context.WithTimeout(ctx, patienceWith(len(b.pods)))
	defer cancel()
	for _, object := range b.needs {
		object.SetNamespace(namespace)
		if err := c.Create(ctx, object); err != nil {
			return 0, fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	following, err := c.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace))
	if err != nil {
		return 0, fmt.Errorf("watch pods: %w", err)
	}
	defer following.Stop()
	created := make(chan error, 1)
	begin := time.Now()
	go func() { created <- b.create(ctx, c, namespace) }()
	if err := awaitReady(following, created, len(b.pods)); err != nil {
		return 0, errors.Join(err, ctx.Err()) // a watch also ends when the time is over
	}
	return time.Since(begin), nil
}

func (b *bare) create(ctx context.Context, c client.Client, namespace string) error {
	for _, pod := range b.pods {
		pod.Namespace = namespace
		if err := c.Create(ctx, pod); err != nil {
			return fmt.Errorf("create pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

// awaitReady returns when so many pods are ready, or when not all could be created.
func awaitReady(following watch.Interface, created <-chan error, pods int) error {
	ready := map[string]bool{}
	for len(ready) < pods {
		select {
		case err := <-created:
			if err != nil {
				return err
			}
			created = nil
		case event, open := <-following.ResultChan():
			if !open {
				return fmt.Errorf("the watch of pods has ended; %d of %d are ready", len(ready), pods)
			}
			if pod, ok := event.Object.(*corev1.Pod); ok && isReady(pod) {
				ready[pod.Name] = true
			}
		}
	}
	return nil
}

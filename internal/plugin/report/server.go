package report

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/workload"
)

var (
	serverKind     = mcpv1alpha1.SchemeGroupVersion.WithKind("MCPServer")
	secretKind     = corev1.SchemeGroupVersion.WithKind("Secret")
	podKind        = corev1.SchemeGroupVersion.WithKind("Pod")
	configMapKind  = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	nodeKind       = corev1.SchemeGroupVersion.WithKind("Node")
	deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")
	replicaSetKind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
)

// server writes everything about one server.
func (c *collector) server(ctx context.Context, key types.NamespacedName) error {
	found, err := c.get(ctx, serverKind, key)
	if err != nil {
		return err
	}
	if found == nil {
		c.lack("MCPServer "+key.String(), errGone)
		return nil
	}
	server := &mcpv1alpha1.MCPServer{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, server); err != nil {
		c.lack("objects of MCPServer "+key.String(), err) // a newer version of the API, perhaps
		server.Name, server.Namespace, server.UID = found.GetName(), found.GetNamespace(), found.GetUID()
	}
	objects, err := c.objectsOf(ctx, server)
	if err != nil {
		return err
	}
	objects = append([]*unstructured.Unstructured{found}, objects...)
	values := NewValues()
	for _, object := range objects {
		values.Learn(object.Object)
	}
	if err := c.learnConfigMaps(ctx, server, values); err != nil {
		return err
	}
	c.all.AddAll(values)
	directory := fmt.Sprintf("servers/%s/%s", key.Namespace, key.Name)
	return c.addObjects(ctx, directory, key.Namespace, values, objects)
}

const errGone = constantError("it is not there any more, or you may not read it")

// addObjects writes objects, their events, and the logs and metrics of those that are pods.
func (c *collector) addObjects(ctx context.Context, directory, namespace string, values *Values, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		file := fmt.Sprintf("%s/%s-%s.yaml", directory, strings.ToLower(object.GetKind()), object.GetName())
		if object.GetKind() == podKind.Kind {
			file = fmt.Sprintf("%s/pods/%s.yaml", directory, object.GetName())
		}
		if err := c.archive.addYAML(file, values.Redact(object.Object)); err != nil {
			return err
		}
	}
	if err := c.addEvents(ctx, directory, namespace, values, objects); err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetKind() != podKind.Kind {
			continue
		}
		if err := c.addPod(ctx, directory, values, object); err != nil {
			return err
		}
	}
	return nil
}

// objectsOf are the objects that a server owns, what they own, and the Secrets that it refers to.
func (c *collector) objectsOf(ctx context.Context, server *mcpv1alpha1.MCPServer) ([]*unstructured.Unstructured, error) {
	ofServer := client.MatchingLabels{mcpv1alpha1.LabelServer: server.Name}
	var all []*unstructured.Unstructured
	for _, owned := range workload.AllOwned() {
		var found []*unstructured.Unstructured
		var err error
		if owned.Name != nil {
			var one *unstructured.Unstructured
			if one, err = c.get(ctx, owned.Kind, types.NamespacedName{Namespace: server.Namespace, Name: owned.Name(server)}); one != nil {
				found = append(found, one)
			}
		} else {
			found, err = c.list(ctx, owned.Kind, server.Namespace, ofServer)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(found, func(object *unstructured.Unstructured) bool { return !metav1.IsControlledBy(object, server) })...)
	}
	for _, name := range secretsOf(&server.Spec) {
		secret, err := c.referred(ctx, secretKind, types.NamespacedName{Namespace: server.Namespace, Name: name})
		if err != nil {
			return nil, err
		}
		if secret != nil {
			all = append(all, secret)
		}
	}
	replicaSets, err := c.list(ctx, replicaSetKind, server.Namespace, ofServer)
	if err != nil {
		return nil, err
	}
	pods, err := c.list(ctx, podKind, server.Namespace, ofServer)
	return slices.Concat(all, replicaSets, pods), err
}

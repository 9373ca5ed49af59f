package report

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-mcp/slipway/internal/plugin/fleet"
)

func sortedKeys(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// cluster writes what all servers have in common.
func (c *collector) cluster(ctx context.Context, now time.Time) error {
	if err := c.addVersions(now); err != nil {
		return err
	}
	if err := c.addNodes(ctx); err != nil {
		return err
	}
	crd, err := c.get(ctx, apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), types.NamespacedName{Name: "mcpservers.mcp.slipway.dev"})
	if err != nil {
		return err
	}
	if crd != nil {
		if err := c.archive.addYAML("customresourcedefinition.yaml", Trim(crd.Object)); err != nil {
			return err
		}
	}
	managers, err := c.list(ctx, deploymentKind, "", fleet.ManagerLabels())
	if err != nil {
		return err
	}
	if len(managers) == 0 {
		return nil
	}
	if err := c.learnOthers(ctx); err != nil {
		return err
	}
	for _, manager := range managers {
		if err := c.addManager(ctx, manager); err != nil {
			return err
		}
	}
	return nil
}

// learnOthers learns the values of all servers: the manager's log may quote those of servers that the report is not about.
func (c *collector) learnOthers(ctx context.Context) error {
	before := len(c.missing)
	err := c.each(ctx, serverKind, "", func(server *unstructured.Unstructured) { c.all.Learn(server.Object) })
	if len(c.missing) > before {
		c.lack("values of other servers in the log of the manager", errNotLearned)
	}
	return err
}

const errNotLearned = constantError("the servers cannot be read, so they are not looked for and not removed there")

// addNodes writes what the nodes run.
func (c *collector) addNodes(ctx context.Context) error {
	nodes := []map[string]string{}
	if err := c.each(ctx, nodeKind, "", func(node *unstructured.Unstructured) {
		info := func(field string) string {
			value, _, _ := unstructured.NestedString(node.Object, "status", "nodeInfo", field)
			return value
		}
		nodes = append(nodes, map[string]string{
			"name": node.GetName(), "kubelet": info("kubeletVersion"), "containerRuntime": info("containerRuntimeVersion"),
			"kernel": info("kernelVersion"), "operatingSystem": info("osImage"), "architecture": info("architecture"),
		})
	}); err != nil {
		return err
	}
	return c.archive.addYAML("nodes.yaml", nodes)
}

// addManager writes what there is about the manager.
func (c *collector) addManager(ctx context.Context, manager *unstructured.Unstructured) error {
	namespace := manager.GetNamespace()
	objects := []*unstructured.Unstructured{manager}
	for _, name := range configMapsOf(manager) {
		found, err := c.get(ctx, configMapKind, types.NamespacedName{Namespace: namespace, Name: name})
		if err != nil {
			return err
		}
		if found != nil {
			objects = append(objects, found)
		}
	}
	selector, _, _ := unstructured.NestedStringMap(manager.Object, "spec", "selector", "matchLabels")
	if len(selector) > 0 {
		replicaSets, err := c.list(ctx, replicaSetKind, namespace, client.MatchingLabels(selector))
		if err != nil {
			return err
		}
		pods, err := c.list(ctx, podKind, namespace, client.MatchingLabels(selector))
		if err != nil {
			return err
		}
		objects = slices.Concat(objects, replicaSets, pods)
	}
	values := NewValues()
	for _, object := range objects {
		values.Learn(object.Object)
	}
	values.AddAll(c.all)
	return c.addObjects(ctx, fmt.Sprintf("manager/%s/%s", namespace, manager.GetName()), namespace, values, objects)
}

// configMapsOf are the ConfigMaps that a Deployment mounts, sorted.
func configMapsOf(deployment *unstructured.Unstructured) []string {
	names := map[string]bool{}
	volumes, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "volumes")
	for _, volume := range volumes {
		fields, _ := volume.(object)
		if name, isSet, _ := unstructured.NestedString(fields, "configMap", "name"); isSet {
			names[name] = true
		}
	}
	return sortedKeys(names)
}

package manifest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

var lifecycleReasons = map[string]string{
	"metadata.finalizers":      toolHiveReasons["metadata.finalizers"],
	"metadata.ownerReferences": toolHiveReasons["metadata.ownerReferences"],
	"spec.gateway":             "Slipway makes no routes yet: write an HTTPRoute to the server's Service, and add its host to spec.adapter.allowedHosts",
	"spec.mcp":                 "every replica serves every session, so the Service needs no affinity",
	"spec.network":             "Slipway makes no NetworkPolicy: write one for pods with the label mcp.slipway.dev/server",
	"spec.runtime.health":      "Slipway's adapter asks the server itself, and its container has the probes",
	"spec.transport":           "the adapter connects to the server inside of the pod, without TLS",
}

// lifecycle reads an MCPServer of kubernetes-sigs/mcp-lifecycle-operator, v1alpha1 or v1beta1.
func (d *draft) lifecycle(spec *node) map[string]string {
	source := spec.get("source")
	if kind := source.get("type"); kind != nil && d.text(kind) != "ContainerImage" {
		d.problem("%s must be ContainerImage", kind.place())
	}
	image := source.get("containerImage")
	d.spec.Image = d.text(image.get("ref"))
	d.spec.ImagePullPolicy = corev1.PullPolicy(d.text(image.get("pullPolicy")))
	d.take(image.get("imagePullSecrets"), &d.spec.ImagePullSecrets)
	d.lifecycleConfig(spec.get("config"))
	d.lifecycleRuntime(spec.get("runtime"))
	// They are for pods and the Service alike.
	labels, annotations := spec.get("extraLabels"), spec.get("extraAnnotations")
	d.podMetadata(labels, annotations)
	d.serviceMetadata(labels, annotations)
	return lifecycleReasons
}

func (d *draft) lifecycleConfig(config *node) {
	port, path := d.int32(config.get("port")), d.text(config.get("path"))
	if path == "/sse" {
		d.sse(port, path)
		d.changed(config.get("path"), "by its path, the server speaks HTTP+SSE: if it speaks Streamable HTTP, change spec.transport")
	} else {
		d.streamable(port, path)
	}
	d.envList(config.get("env"))
	d.spec.Args = d.argList(config.get("arguments"), false)
	d.take(config.get("envFrom"), &d.spec.EnvFrom)
	for number, item := range d.list(config.get("storage")) {
		d.lifecycleStorage(number, item)
	}
}

// lifecycleStorage takes over a mount with its volume.
func (d *draft) lifecycleStorage(number int, item *node) {
	mount := corev1.VolumeMount{MountPath: d.text(item.get("path"))}
	switch at := item.get("permissions"); d.text(at) {
	case "ReadOnly", "": // the default, there
		mount.ReadOnly = true
	case "RecursiveReadOnly":
		enabled := corev1.RecursiveReadOnlyEnabled
		mount.ReadOnly, mount.RecursiveReadOnly = true, &enabled
	case "ReadWrite":
	default:
		d.problem("%s must be ReadOnly, ReadWrite or RecursiveReadOnly", at.place())
	}
	var volume corev1.VolumeSource
	source := item.get("source")
	d.take(source.get("configMap"), &volume.ConfigMap)
	d.take(source.get("secret"), &volume.Secret)
	d.take(source.get("emptyDir"), &volume.EmptyDir)
	switch at := source.get("type"); d.text(at) {
	case "ConfigMap", "Secret", "EmptyDir":
	default:
		d.problem("%s: source.type must be ConfigMap, Secret or EmptyDir", item.place())
	}
	d.addVolume(fmt.Sprintf("storage-%d", number), volume, mount)
}

func (d *draft) lifecycleRuntime(runtime *node) {
	d.replicas(runtime.get("replicas"))
	d.take(runtime.get("resources"), &d.spec.Resources)
	security := runtime.get("security")
	d.spec.ServiceAccountName = d.text(security.get("serviceAccountName"))
	d.take(security.get("securityContext"), &d.spec.SecurityContext)
	d.keepToken(security.get("serviceAccountName"), nil)
	if field := security.get("podSecurityContext"); field != nil {
		d.take(field, &d.podTemplate().SecurityContext)
	}
}

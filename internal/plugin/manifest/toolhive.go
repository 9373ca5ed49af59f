package manifest

import (
	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

const (
	noAuth      = "Slipway does not authenticate or authorize clients yet: put a gateway in front that does"
	noTelemetry = "every adapter has metrics at port 16271: there is nothing to configure"
)

var toolHiveReasons = map[string]string{
	"metadata.finalizers":        "Slipway needs no finalizer",
	"metadata.ownerReferences":   "the owner would delete the new server, too",
	"spec.audit":                 "Slipway has no audit log yet",
	"spec.authServerRef":         noAuth,
	"spec.authzConfig":           noAuth,
	"spec.externalAuthConfigRef": noAuth,
	"spec.groupRef":              "Slipway has no groups of servers: use labels",
	"spec.oidcConfig":            noAuth,
	"spec.oidcConfigRef":         noAuth,
	"spec.permissionProfile":     "write a NetworkPolicy for what the server may reach; ToolHive does not enforce profiles on Kubernetes",
	"spec.podTemplateSpec":       "spec.podTemplate of Slipway has no such field",
	"spec.port":                  "it is a port of ToolHive's proxy: Slipway's Service has port 80, unless spec.service.port is set",
	"spec.proxyPort":             "it is a port of ToolHive's proxy: Slipway's Service has port 80, unless spec.service.port is set",
	"spec.rateLimiting":          "Slipway has no rate limits per user: spec.adapter.limits bounds what one session takes",
	"spec.replicas":              "it is the number of ToolHive's proxies: Slipway has an adapter in each pod",
	"spec.resourceOverrides":     "it is about objects of ToolHive's proxy: use spec.service and spec.podTemplate",
	"spec.sessionAffinity":       "every replica serves every session, so the Service needs no affinity",
	"spec.sessionStorage":        "Slipway needs no storage for sessions",
	"spec.telemetry":             noTelemetry,
	"spec.telemetryConfigRef":    noTelemetry,
	"spec.toolConfigRef":         "Slipway does not filter or rename tools",
	"spec.tools":                 "Slipway does not filter or rename tools",
}

// toolHivePort is the port that ToolHive takes for a server over HTTP if none is given.
const toolHivePort = 8080

// toolHive reads an MCPServer of ToolHive, v1alpha1 or v1beta1.
func (d *draft) toolHive(spec *node) map[string]string {
	d.spec.Image = d.text(spec.get("image"))
	d.toolHiveTransport(spec)
	d.toolHiveEnv(spec)
	d.spec.Args = d.argList(spec.get("args"), false)
	d.toolHiveVolumes(spec.get("volumes"))
	d.take(spec.get("resources"), &d.spec.Resources)
	d.spec.ServiceAccountName = d.text(spec.get("serviceAccount"))
	d.replicas(spec.get("backendReplicas"))
	pod := spec.get("podTemplateSpec")
	d.podTemplateSpec(pod)
	d.keepToken(firstOf(spec.get("serviceAccount"), pod.at("spec", "serviceAccountName")), pod.at("spec", "automountServiceAccountToken"))
	return toolHiveReasons
}

func (d *draft) toolHiveTransport(spec *node) {
	at := spec.get("transport")
	transport := mcpv1alpha1.TransportType(d.text(at))
	if transport == "" {
		transport = mcpv1alpha1.TransportStdio
	}
	// Clients find Streamable HTTP at every MCPServer.
	if mode := spec.get("proxyMode"); d.text(mode) == "sse" && transport == mcpv1alpha1.TransportStdio {
		d.spec.Adapter.LegacySSE = true
	}
	if transport == mcpv1alpha1.TransportStdio {
		d.spec.Transport.Type = transport
		return
	}
	port := int32(0)
	for _, key := range []string{"mcpPort", "targetPort"} { // targetPort is the older name
		if given := spec.get(key); given != nil && port == 0 {
			port = d.int32(given)
		}
	}
	if port == 0 {
		port = toolHivePort
		d.changed(spec, "no mcpPort is given: 8080 is what ToolHive takes")
	}
	switch transport {
	case mcpv1alpha1.TransportStreamableHTTP:
		d.streamable(port, "")
	case mcpv1alpha1.TransportSSE:
		d.sse(port, "")
	default:
		d.problem("%s must be stdio, streamable-http or sse", at.place())
	}
}

func (d *draft) toolHiveEnv(spec *node) {
	d.envList(spec.get("env"))
	for _, item := range d.list(spec.get("secrets")) {
		name, key, target := d.text(item.get("name")), d.text(item.get("key")), d.text(item.get("targetEnvName"))
		if target == "" {
			target = key
		}
		if name == "" || key == "" {
			d.problem("%s must have a name and a key", item.place())
			continue
		}
		d.addEnv(item, corev1.EnvVar{Name: target, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key,
		}}})
	}
}

// envList takes over variables as a pod has them.
func (d *draft) envList(n *node) {
	for _, item := range d.list(n) {
		var variable corev1.EnvVar
		d.take(item, &variable)
		d.podEnv(item, variable)
	}
}

func (d *draft) toolHiveVolumes(n *node) {
	for _, item := range d.list(n) {
		source := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: d.text(item.get("hostPath"))}}
		mount := corev1.VolumeMount{MountPath: d.text(item.get("mountPath")), ReadOnly: d.bool(item.get("readOnly"))}
		d.addVolume(d.text(item.get("name")), source, mount)
		d.changed(item, "it is a directory of the node, which namespaces with Pod Security baseline or restricted refuse")
	}
}

// podTemplateSpec takes over what Slipway's podTemplate and container have.
func (d *draft) podTemplateSpec(n *node) {
	d.podMetadata(n.at("metadata", "labels"), n.at("metadata", "annotations"))
	spec := n.get("spec")
	d.takePod(spec, podFields)
	if name := d.text(spec.get("serviceAccountName")); d.spec.ServiceAccountName == "" {
		d.spec.ServiceAccountName = name
	} else if name != "" && name != d.spec.ServiceAccountName {
		d.dropped(spec.get("serviceAccountName"), "spec.serviceAccount names another")
	}
	d.take(spec.get("imagePullSecrets"), &d.spec.ImagePullSecrets)
	var volumes []corev1.Volume
	d.take(spec.get("volumes"), &volumes)
	d.spec.Volumes = append(d.spec.Volumes, volumes...)
	for _, container := range d.list(spec.get("containers")) {
		if name := container.get("name"); name != nil && name.value == "mcp" {
			d.container(container)
		}
	}
}

// container takes over the container of the server.
func (d *draft) container(n *node) {
	d.text(n.get("name"))
	if image := d.text(n.get("image")); d.spec.Image == "" {
		d.spec.Image = image
	} else if image != "" && image != d.spec.Image {
		d.dropped(n.get("image"), "spec.image names another")
	}
	d.envList(n.get("env"))
	d.spec.Command = d.texts(n.get("command"))
	if args := n.get("args"); len(d.spec.Args) == 0 {
		d.spec.Args = d.argList(args, false)
	} else if args != nil {
		d.dropped(args, "spec.args is given, too")
	}
	d.spec.WorkingDir = d.text(n.get("workingDir"))
	d.spec.ImagePullPolicy = corev1.PullPolicy(d.text(n.get("imagePullPolicy")))
	d.take(n.get("envFrom"), &d.spec.EnvFrom)
	d.take(n.get("securityContext"), &d.spec.SecurityContext)
	var mounts []corev1.VolumeMount
	d.take(n.get("volumeMounts"), &mounts)
	d.spec.VolumeMounts = append(d.spec.VolumeMounts, mounts...)
	if resources := n.get("resources"); len(d.spec.Resources.Limits)+len(d.spec.Resources.Requests) == 0 {
		d.take(resources, &d.spec.Resources)
	} else if resources != nil {
		d.dropped(resources, "spec.resources is given, too")
	}
}

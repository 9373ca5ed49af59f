package manifest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

var kmcpReasons = map[string]string{
	"metadata.finalizers":            toolHiveReasons["metadata.finalizers"],
	"metadata.ownerReferences":       toolHiveReasons["metadata.ownerReferences"],
	"spec.authn":                     noAuth,
	"spec.authz":                     noAuth,
	"spec.deployment.initContainer":  "it is the one with kmcp's gateway, which Slipway does not need",
	"spec.deployment.port":           "it is the port of kmcp's gateway: Slipway's Service has port 80, unless spec.service.port is set",
	"spec.deployment.serviceAccount": "Slipway's own ServiceAccount has no annotations: create one with them, and name it in spec.serviceAccountName",
	"spec.deployment.sidecars":       "Slipway's pods have no containers of yours beside the server",
	"spec.httpTransport.tls":         "the adapter connects to the server inside of the pod, without TLS",
	"spec.routeFilter":               "set spec.adapter.allowedOrigins for browsers",
	"spec.runtime":                   "Slipway runs servers in pods only",
	"spec.substrate":                 "Slipway runs servers in pods only",
	"spec.timeout":                   "clients decide how long they wait; spec.session.startTimeout is for slow starts",
}

// kmcp reads an MCPServer of kmcp.
func (d *draft) kmcp(spec *node) map[string]string {
	deployment := spec.get("deployment")
	d.kmcpTransport(spec)
	env := deployment.get("env")
	names := slices.Clone(d.fields(env))
	slices.Sort(names) // as kmcp does
	for _, name := range names {
		if field := env.get(name); field != nil {
			d.podEnv(field, corev1.EnvVar{Name: name, Value: d.scalar(field)})
		} else {
			d.dropped(env.fields[name], "it is null")
		}
	}
	d.kmcpCommand(deployment)
	d.kmcpReferences(deployment)
	d.spec.ImagePullPolicy = corev1.PullPolicy(d.text(deployment.get("imagePullPolicy")))
	d.take(deployment.get("imagePullSecrets"), &d.spec.ImagePullSecrets)
	d.take(deployment.get("resources"), &d.spec.Resources)
	d.take(deployment.get("securityContext"), &d.spec.SecurityContext)
	d.spec.ServiceAccountName = d.text(deployment.get("serviceAccountName"))
	d.keepToken(deployment.get("serviceAccountName"), nil)
	d.replicas(deployment.get("replicas"))
	d.podMetadata(deployment.get("labels"), deployment.get("annotations"))
	d.takePod(deployment, kmcpPodFields)
	if runtime := spec.get("runtime"); runtime != nil && runtime.value == "kubernetes" {
		runtime.tick()
	}
	return kmcpReasons
}

func (d *draft) kmcpTransport(spec *node) {
	at := spec.get("transportType")
	switch d.text(at) {
	case "stdio", "":
		d.spec.Transport.Type = mcpv1alpha1.TransportStdio
		d.fields(spec.get("stdioTransport"))
	case "http":
		target, port := spec.at("httpTransport", "targetPort"), spec.at("deployment", "port")
		if target == nil || port != nil && port.value == target.value {
			port.tick()
			target = firstOf(target, port)
		}
		if target == nil {
			d.problem("%s: spec.httpTransport.targetPort must be set: it is the port that the server listens on", at.place())
		}
		d.streamable(d.int32(target), d.text(spec.at("httpTransport", "path")))
	default:
		d.problem("%s must be stdio or http", at.place())
	}
}

// kmcpCommand takes over the program. Without an image, kmcp has one for npx and one for uvx.
func (d *draft) kmcpCommand(deployment *node) {
	d.spec.Image = d.text(deployment.get("image"))
	at := deployment.get("cmd")
	// kmcp's gateway starts stdio servers, and replaces nothing.
	isLiteral := d.spec.Transport.Type == mcpv1alpha1.TransportStdio
	if program := d.text(at); program != "" {
		d.spec.Command = []string{program}
	}
	d.spec.Args = d.argList(deployment.get("args"), isLiteral)
	if d.spec.Image != "" || at == nil {
		return
	}
	var found []word
	for _, arg := range d.spec.Args {
		found = append(found, word{text: arg})
	}
	switch at.value {
	case "npx":
		d.spec.Image = npxImage
		name, _ := packageOf(found, []string{"-p", "--package"})
		d.installs(at, name)
	case "uvx":
		d.spec.Image = uvxImage
		name, _ := packageOf(found, []string{"--from"})
		d.installs(at, name)
	}
}

// kmcpReferences takes over Secrets, which kmcp makes variables of, ConfigMaps, which it mounts, and volumes.
func (d *draft) kmcpReferences(deployment *node) {
	for _, item := range d.list(deployment.get("secretRefs")) {
		if name := d.text(item.get("name")); name != "" {
			d.spec.EnvFrom = append(d.spec.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: name},
			}})
		}
	}
	d.take(deployment.get("volumes"), &d.spec.Volumes)
	d.take(deployment.get("volumeMounts"), &d.spec.VolumeMounts)
	for _, item := range d.list(deployment.get("configMapRefs")) {
		if name := d.text(item.get("name")); name != "" {
			source := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
			d.addVolume("cm-"+name, source, corev1.VolumeMount{MountPath: "/configmaps/" + name, ReadOnly: true})
		}
	}
}

// kmcpPodFields are the fields of a pod that a deployment of kmcp has.
var kmcpPodFields = []podField{
	{"affinity", func(t *mcpv1alpha1.PodTemplate) any { return &t.Affinity }},
	{"nodeSelector", func(t *mcpv1alpha1.PodTemplate) any { return &t.NodeSelector }},
	{"podSecurityContext", func(t *mcpv1alpha1.PodTemplate) any { return &t.SecurityContext }},
	{"tolerations", func(t *mcpv1alpha1.PodTemplate) any { return &t.Tolerations }},
}

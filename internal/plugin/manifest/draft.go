package manifest

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// draft is a server that is being made from a part of the input.
type draft struct {
	*importer
	title  string // what the input calls it
	root   *node  // what it is made from
	server *mcpv1alpha1.MCPServer
	spec   *mcpv1alpha1.MCPServerSpec
	secret *corev1.Secret // nil if it has no secrets
}

func (i *importer) newDraft(title string, root *node) *draft {
	server := &mcpv1alpha1.MCPServer{}
	server.SetGroupVersionKind(serverKind)
	return &draft{importer: i, title: title, root: root, server: server, spec: &server.Spec}
}

func (d *draft) dropped(n *node, why string) {
	n.tick()
	d.drop(d.title, relative(n, d.root), why)
}

func (d *draft) changed(n *node, why string) { d.change(d.title, relative(n, d.root), why) }

// setName gives the server a valid name that no other has. It must come first: a Secret is named after
// the server.
func (d *draft) setName(at *node, namespace, name string) {
	d.server.Namespace = namespace
	d.server.Name = d.unique(namespace, label(name))
	if d.server.Name != name {
		d.changed(at, "the name becomes "+d.server.Name+": it must be a DNS label, and unique in its namespace")
	}
}

// metadata takes over the metadata of a manifest.
func (d *draft) metadata(n *node) {
	name := d.text(n.get("name"))
	if name == "" {
		d.problem("line %d: %s: metadata.name must be set", d.root.line, d.title)
	}
	namespace := d.text(n.get("namespace"))
	if namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0 {
		d.problem("%s must be a DNS label", n.get("namespace").place())
	}
	if wanted := d.options.Namespace; wanted != "" {
		if namespace != "" && namespace != wanted {
			d.changed(n.get("namespace"), "the namespace becomes "+wanted+": Secrets, ConfigMaps and ServiceAccounts that the server uses must be there, too")
		}
		namespace = wanted
	}
	d.setName(n.get("name"), namespace, name)
	d.server.Labels = d.labels(n.get("labels"), onObject)
	d.server.Annotations = d.annotations(n.get("annotations"), onObject)
	for _, written := range []string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"} {
		n.get(written).tick() // by the API server, and only there of use
	}
}

func (d *draft) podTemplate() *mcpv1alpha1.PodTemplate {
	if d.spec.PodTemplate == nil {
		d.spec.PodTemplate = &mcpv1alpha1.PodTemplate{}
	}
	return d.spec.PodTemplate
}

// take reads a value of a type that Kubernetes has.
func (d *draft) take(n *node, value any) { d.into(d.title, n, value) }

// replicas takes over a number of pods.
func (d *draft) replicas(n *node) {
	if n != nil {
		number := d.int32(n)
		d.spec.Replicas = &number
	}
}

// streamable makes the server one that speaks HTTP.
func (d *draft) streamable(port int32, path string) {
	d.spec.Transport = mcpv1alpha1.Transport{
		Type:           mcpv1alpha1.TransportStreamableHTTP,
		StreamableHTTP: &mcpv1alpha1.StreamableHTTPTransport{Port: mcpv1alpha1.ServerPort(port), Path: mcpv1alpha1.URLPath(path)},
	}
}

func (d *draft) sse(port int32, path string) {
	d.spec.Transport = mcpv1alpha1.Transport{
		Type: mcpv1alpha1.TransportSSE,
		SSE:  &mcpv1alpha1.SSETransport{Port: mcpv1alpha1.ServerPort(port), Path: mcpv1alpha1.URLPath(path)},
	}
}

// addEnv adds a variable that is not secret, or refers to where its value is. As in a pod, the
// last of two with the same name wins.
func (d *draft) addEnv(at *node, variable corev1.EnvVar) {
	if why := wrongName(variable.Name); why != "" {
		d.dropped(at, why)
		return
	}
	if d.hasEnv(variable.Name) {
		d.changed(at, "variable "+variable.Name+" is set more than once: the last value counts")
		d.spec.Env = slices.DeleteFunc(d.spec.Env, func(v corev1.EnvVar) bool { return v.Name == variable.Name })
	}
	d.spec.Env = append(d.spec.Env, variable)
}

func (d *draft) hasEnv(name string) bool {
	return slices.ContainsFunc(d.spec.Env, func(v corev1.EnvVar) bool { return v.Name == name })
}

// wrongName says why a variable cannot have a name. It is also the name of a key of the Secret.
func wrongName(name string) string {
	switch {
	case len(validation.IsEnvVarName(name)) > 0 || !isSecretKey(name):
		return "a variable must have a name of letters, digits, '_', '-' and '.', and not begin with a digit"
	case strings.HasPrefix(name, "SLIPWAY_"):
		return "variables whose name starts with SLIPWAY_ are reserved"
	default:
		return ""
	}
}

func isSecretKey(name string) bool { return len(validation.IsConfigMapKey(name)) == 0 }

// addVolume adds a volume and where it is mounted.
func (d *draft) addVolume(name string, source corev1.VolumeSource, mount corev1.VolumeMount) {
	name = label(name)
	made := name
	for number := 2; slices.ContainsFunc(d.spec.Volumes, func(v corev1.Volume) bool { return v.Name == made }); number++ {
		suffix := "-" + strconv.Itoa(number)
		made = cut(name, longestName-len(suffix)) + suffix
	}
	name, mount.Name = made, made
	d.spec.Volumes = append(d.spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	d.spec.VolumeMounts = append(d.spec.VolumeMounts, mount)
}

// keepToken keeps what a pod with a ServiceAccount of its own has unless it says otherwise.
func (d *draft) keepToken(at, automount *node) {
	if at != nil && d.spec.ServiceAccountName != "" && automount == nil {
		d.podTemplate().AutomountServiceAccountToken = true
		d.changed(at, "the server keeps the token of its ServiceAccount: if it does not use the Kubernetes API, "+
			"remove spec.podTemplate.automountServiceAccountToken")
	}
}

// finish adds the server to the result, if nothing is wrong with it.
func (d *draft) finish() {
	d.check()
	d.servers = append(d.servers, d)
}

func (d *draft) addSecret(key, value string) *corev1.EnvVarSource {
	if d.secret == nil {
		d.secret = newSecret(d.server.Namespace, d.server.Name+"-imported")
		d.secret.Type = corev1.SecretTypeOpaque
	}
	d.secret.StringData[key] = value
	return secretSource(d.secret.Name, key)
}

func newSecret(namespace, name string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, StringData: map[string]string{}}
	secret.SetGroupVersionKind(secretKind)
	return secret
}

func secretSource(secret, key string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key}}
}

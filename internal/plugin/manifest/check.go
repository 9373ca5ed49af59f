package manifest

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// Bounds of the API, which tests compare with the CRD.
const (
	mostWords       = 256
	longestWord     = 32768
	longestImage    = 1024
	longestPath     = 1024
	longestDir      = 4096
	mostReplicas    = 1000
	mostAnnotations = 256 << 10 // bytes of all, in Kubernetes
	mostObjectBytes = 1 << 20   // what etcd takes, with some room
)

// wrong says what is wrong with the server that was made. The field is one of the MCPServer.
func (d *draft) wrong(field, what string) {
	d.problem("%s: %s of the MCPServer would be refused: %s", d.title, field, what)
}

// check refuses what the API server would refuse, while the input is still at hand.
func (d *draft) check() {
	d.checkImage()
	d.checkCommand()
	d.checkTransport()
	d.checkVolumes()
	d.checkLengths()
	d.checkPod()
	d.checkQuantities()
	d.checkSize()
}

var imageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]*$`)

func isImage(name string) bool { return len(name) <= longestImage && imageName.MatchString(name) }

const wrongImage = "it must be the name of an image, such as registry.example/team/server:1.4"

func (d *draft) checkImage() {
	if !isImage(d.spec.Image) {
		d.wrong("spec.image", wrongImage)
	}
	policies := []corev1.PullPolicy{"", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}
	if !slices.Contains(policies, d.spec.ImagePullPolicy) {
		d.wrong("spec.imagePullPolicy", "it must be Always, IfNotPresent or Never")
	}
	secrets := d.spec.ImagePullSecrets
	if isRepeated(secrets, func(s corev1.LocalObjectReference) string { return s.Name }) {
		d.wrong("spec.imagePullSecrets", "a name is there twice")
	}
	if name := d.spec.ServiceAccountName; name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		d.wrong("spec.serviceAccountName", "it must be the name of a ServiceAccount")
	}
}

func isRepeated[T any](list []T, key func(T) string) bool {
	seen := map[string]bool{}
	for _, item := range list {
		if seen[key(item)] {
			return true
		}
		seen[key(item)] = true
	}
	return false
}

func (d *draft) checkCommand() {
	for _, words := range [][]string{d.spec.Command, d.spec.Args} {
		isLong := func(word string) bool { return utf8.RuneCountInString(word) > longestWord }
		if len(words) > mostWords || slices.ContainsFunc(words, isLong) {
			d.wrong("spec.command or spec.args", "they may have 256 words of 32768 characters each")
		}
	}
	if utf8.RuneCountInString(d.spec.WorkingDir) > longestDir {
		d.wrong("spec.workingDir", "it may have 4096 characters")
	}
	if replicas := d.spec.Replicas; replicas != nil && *replicas > mostReplicas {
		d.wrong("spec.replicas", "there can be 1000")
	}
}

var urlPath = regexp.MustCompile(`^/[^\s?#]*$`)

func (d *draft) checkTransport() {
	var port mcpv1alpha1.ServerPort
	var path mcpv1alpha1.URLPath
	switch transport := d.spec.Transport; {
	case transport.StreamableHTTP != nil:
		port, path = transport.StreamableHTTP.Port, transport.StreamableHTTP.Path
	case transport.SSE != nil:
		port, path = transport.SSE.Port, transport.SSE.Path
	default:
		return
	}
	if !isServerPort(int64(port)) {
		d.wrong("spec.transport", "the port "+wrongPort)
	}
	if path != "" && !isURLPath(string(path)) {
		d.wrong("spec.transport", "the path "+wrongPath)
	}
}

// What the API says of ports and paths that it refuses.
const (
	wrongPort = "must be one from 1 to 65535, and not from 16270 to 16279, which are the adapter's"
	wrongPath = "must start with '/' and hold no white space, '?' or '#'"
)

func isServerPort(port int64) bool {
	const firstReserved, lastReserved, last = mcpv1alpha1.AdapterPort, mcpv1alpha1.AdapterPort + 9, 65535
	return port >= 1 && port <= last && (port < firstReserved || port > lastReserved)
}

func isURLPath(path string) bool {
	return urlPath.MatchString(path) && utf8.RuneCountInString(path) <= longestPath
}

func (d *draft) checkVolumes() {
	names := map[string]bool{}
	for _, volume := range d.spec.Volumes {
		switch name := volume.Name; {
		case len(validation.IsDNS1123Label(name)) > 0:
			d.wrong("spec.volumes", "names must be DNS labels")
		case names[name]:
			d.wrong("spec.volumes", "the name "+name+" is there twice")
		case strings.HasPrefix(name, "slipway-"):
			d.wrong("spec.volumes", "names that start with slipway- are reserved")
		}
		names[volume.Name] = true
	}
	for _, mount := range d.spec.VolumeMounts {
		switch {
		case !names[mount.Name]:
			d.wrong("spec.volumeMounts", "it names a volume that is not there")
		case mount.MountPath == "" || strings.HasPrefix(mount.MountPath, "/slipway"):
			d.wrong("spec.volumeMounts", "each must have a mountPath that does not start with /slipway")
		}
	}
	if isRepeated(d.spec.VolumeMounts, func(m corev1.VolumeMount) string { return m.MountPath }) {
		d.wrong("spec.volumeMounts", "a mountPath is there twice")
	}
}

// checkLengths compares lists with the most items that the API allows.
func (d *draft) checkLengths() {
	for _, list := range []struct {
		field        string
		length, most int
	}{
		{"spec.imagePullSecrets", len(d.spec.ImagePullSecrets), 16},
		{"spec.env", len(d.spec.Env), 512},
		{"spec.envFrom", len(d.spec.EnvFrom), 64},
		{"spec.volumes", len(d.spec.Volumes), 64},
		{"spec.volumeMounts", len(d.spec.VolumeMounts), 64},
		{"spec.service.labels", len(d.spec.Service.Labels), 64},
		{"spec.service.annotations", len(d.spec.Service.Annotations), 64},
	} {
		if list.length > list.most {
			d.wrong(list.field, "it has too many items")
		}
	}
}

// checkPod checks the podTemplate.
func (d *draft) checkPod() {
	template := d.spec.PodTemplate
	if template == nil {
		return
	}
	metadata := template.Metadata
	if metadata == nil {
		metadata = &mcpv1alpha1.PodMetadata{}
	}
	const most, mostConstraints = 64, 16
	lengths := []int{len(template.NodeSelector), len(template.Tolerations), len(template.HostAliases), len(metadata.Labels), len(metadata.Annotations)}
	if slices.Max(lengths) > most || len(template.TopologySpreadConstraints) > mostConstraints {
		d.wrong("spec.podTemplate", "a list has too many items")
	}
	d.checkPodNames(template)
	if isRepeated(template.HostAliases, func(a corev1.HostAlias) string { return a.IP }) {
		d.wrong("spec.podTemplate.hostAliases", "an ip is there twice")
	}
	isSameConstraint := func(c corev1.TopologySpreadConstraint) string {
		return c.TopologyKey + " " + string(c.WhenUnsatisfiable)
	}
	if isRepeated(template.TopologySpreadConstraints, isSameConstraint) {
		d.wrong("spec.podTemplate.topologySpreadConstraints", "two have the same topologyKey and whenUnsatisfiable")
	}
	if !slices.Contains([]corev1.DNSPolicy{"", corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone}, template.DNSPolicy) {
		d.wrong("spec.podTemplate.dnsPolicy", "it must be ClusterFirst, Default or None")
	}
}

func (d *draft) checkPodNames(template *mcpv1alpha1.PodTemplate) {
	for key, value := range template.NodeSelector {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(string(value))) > 0 {
			d.wrong("spec.podTemplate.nodeSelector", "it must have labels of nodes")
			break
		}
	}
	for _, name := range []string{template.PriorityClassName, template.RuntimeClassName, template.SchedulerName} {
		if name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
			d.wrong("spec.podTemplate", "the names of classes and schedulers must be DNS names")
		}
	}
}

// quantity matches what the schema of the API does. Kubernetes itself reads more than that.
var quantity = regexp.MustCompile(`^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?$`)

func (d *draft) checkQuantities() {
	isFine := func(q *resource.Quantity) bool { return q == nil || quantity.MatchString(q.String()) }
	for _, list := range []corev1.ResourceList{d.spec.Resources.Limits, d.spec.Resources.Requests} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if amount := list[name]; !isFine(&amount) {
				d.wrong("spec.resources", "the amount of "+string(name)+" is not a quantity such as 500m or 64Mi")
			}
		}
	}
	for _, volume := range d.spec.Volumes {
		if volume.EmptyDir != nil && !isFine(volume.EmptyDir.SizeLimit) {
			d.wrong("spec.volumes", "a sizeLimit is not a quantity such as 64Mi")
		}
	}
}

func (d *draft) checkSize() {
	total := 0
	for key, value := range d.server.Annotations {
		total += len(key) + len(value)
	}
	if total > mostAnnotations {
		d.wrong("metadata.annotations", "they may have 256 KiB")
	}
	for _, object := range []any{d.server, d.secret} {
		if encoded, err := json.Marshal(object); err != nil || len(encoded) > mostObjectBytes {
			d.problem("%s: the MCPServer or its Secret would have more than 1 MiB: leave out long values", d.title)
		}
	}
}

package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// The volumes that a pod has besides the user's. Their names are reserved: users
// cannot mount them.
const (
	sharedVolume   = "slipway-shared"
	keysVolume     = "slipway-keys"
	settingsVolume = "slipway-settings"
	homeVolume     = "slipway-home"
	tmpVolume      = "slipway-tmp"
	tokenVolume    = "slipway-token"
)

const (
	// sharedDir is where the adapter puts its socket and the launcher, and the server's
	// container finds them.
	sharedDir    = "/slipway"
	socketPath   = sharedDir + "/adapter.sock"
	launcherPath = sharedDir + "/launcher"

	tmpDir = "/tmp"
	// homeDir is a directory that no image has: a volume hides what an image has there,
	// and there are servers that live in their user's home.
	homeDir = "/slipway-home"
	// tokenDir is where every Kubernetes client looks for a token.
	tokenDir = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // a path

	// The drain timeouts of a spec that does not say, as its comments promise. For a stdio server
	// the grace period of the pod stays below the 10 minutes that the cluster autoscaler waits for
	// a pod. A server that speaks HTTP may ignore the signal to end, and then takes all of its
	// grace period, however early the drain is over.
	stdioDrainTimeout = 9 * time.Minute
	httpDrainTimeout  = time.Minute
	// settleTime is how long a pod that goes away serves everything before it drains. The
	// endpoints of its Service, and the proxies that know them, have changed by then.
	settleTime = 5 * time.Second
	// afterDrain is how much longer than its drain a pod may take to end.
	afterDrain = 15 * time.Second

	annotationDefaultContainer = "kubectl.kubernetes.io/default-container"
)

// parts are what pods take over from a spec, as apply configurations. The spec's JSON
// is decoded over the defaults. So, in structures, a field that the user gives wins
// and one that is left out keeps its default; lists are the user's or the default.
type parts struct {
	ImagePullSecrets []corev1ac.LocalObjectReferenceApplyConfiguration `json:"imagePullSecrets"`
	Env              []corev1ac.EnvVarApplyConfiguration               `json:"env"`
	EnvFrom          []corev1ac.EnvFromSourceApplyConfiguration        `json:"envFrom"`
	Resources        *corev1ac.ResourceRequirementsApplyConfiguration  `json:"resources"`
	Volumes          []corev1ac.VolumeApplyConfiguration               `json:"volumes"`
	VolumeMounts     []corev1ac.VolumeMountApplyConfiguration          `json:"volumeMounts"`
	SecurityContext  *corev1ac.SecurityContextApplyConfiguration       `json:"securityContext"`
	Session          map[string]any                                    `json:"session"` // for the adapter's flags
	Adapter          adapterParts                                      `json:"adapter"`
	// PodTemplate has the names of a PodSpec for everything that goes into one.
	PodTemplate corev1ac.PodSpecApplyConfiguration `json:"podTemplate"`
}

// adapterParts are the adapter's resources for its container, and all of its fields for its flags.
type adapterParts struct {
	Resources *corev1ac.ResourceRequirementsApplyConfiguration `json:"resources"`
	fields    map[string]any
}

// UnmarshalJSON decodes the object for both.
func (a *adapterParts) UnmarshalJSON(text []byte) error {
	type alone adapterParts // does not unmarshal itself
	return errors.Join(json.Unmarshal(text, (*alone)(a)), json.Unmarshal(text, &a.fields))
}

func partsOf(server *mcpv1alpha1.MCPServer) (*parts, error) {
	p := &parts{SecurityContext: defaultSecurity()}
	p.PodTemplate.SecurityContext = defaultPodSecurity()
	encoded, err := json.Marshal(&server.Spec)
	if err == nil {
		err = json.Unmarshal(encoded, p)
	}
	if err != nil {
		return nil, fmt.Errorf("convert spec of MCPServer %s/%s: %w", server.Namespace, server.Name, err)
	}
	return p, nil
}

// PodTemplate renders the server's pods: the adapter as a native sidecar, and the
// user's container behind it. The error is a CommandUnknownError if neither the spec nor
// the image names the program of a stdio server.
//
// podTemplate in the spec is merged as follows. Labels and annotations are added, and
// ours win. securityContext is merged field by field over our default, and the user's
// wins. Everything else is taken as it is; a topology spread constraint without a
// labelSelector gets that of the server.
func PodTemplate(in Input) (*corev1ac.PodTemplateSpecApplyConfiguration, error) {
	in.Server, _ = in.Defaults.fill(in.Server)
	p, err := partsOf(in.Server)
	if err != nil {
		return nil, err
	}
	user := chooseUser(in)
	container, err := serverContainer(in, p, user)
	if err != nil {
		return nil, err
	}
	adapter, err := adapterContainer(in, p, user)
	if err != nil {
		return nil, err
	}
	pod := &p.PodTemplate
	mergePodSecurity(in.Server, pod.SecurityContext)
	for i := range pod.TopologySpreadConstraints {
		if constraint := &pod.TopologySpreadConstraints[i]; constraint.LabelSelector == nil {
			constraint.WithLabelSelector(labelSelector(in.Server))
		}
	}
	pod.ImagePullSecrets = p.ImagePullSecrets
	pod.Volumes = p.Volumes
	pod.WithServiceAccountName(serviceAccountName(in.Server)).
		// A token, if there is to be one, is mounted into the server's container alone.
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(graceOf(drainTimeout(in.Server))).
		WithInitContainers(adapter).
		WithContainers(container).
		WithVolumes(volumes(in)...)
	return named(podMetadata(in).WithSpec(pod))
}

// named gives a template a name that its pods carry: a hash of all the rest.
func named(template *corev1ac.PodTemplateSpecApplyConfiguration) (*corev1ac.PodTemplateSpecApplyConfiguration, error) {
	encoded, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("encode pod template: %w", err)
	}
	hash := sha256.Sum256(encoded)
	return template.WithAnnotations(map[string]string{mcpv1alpha1.AnnotationTemplate: hex.EncodeToString(hash[:8])}), nil
}

func podMetadata(in Input) *corev1ac.PodTemplateSpecApplyConfiguration {
	template := corev1ac.PodTemplateSpec()
	if given := in.Server.Spec.PodTemplate; given != nil && given.Metadata != nil {
		for key, value := range given.Metadata.Labels {
			template.WithLabels(map[string]string{key: string(value)})
		}
		for key, value := range given.Metadata.Annotations {
			template.WithAnnotations(map[string]string{key: string(value)})
		}
	}
	template.WithLabels(labels(in.Server)).WithAnnotations(map[string]string{
		annotationDefaultContainer:           mcpv1alpha1.ContainerServer,
		mcpv1alpha1.AnnotationServerUID:      string(in.Server.UID),
		mcpv1alpha1.AnnotationAdapterVersion: in.Adapter.Version,
	})
	if in.References != "" {
		template.WithAnnotations(map[string]string{mcpv1alpha1.AnnotationReferences: in.References})
	}
	return template
}

// volumes are those that the pod has besides the user's.
func volumes(in Input) []*corev1ac.VolumeApplyConfiguration {
	all := []*corev1ac.VolumeApplyConfiguration{
		corev1ac.Volume().WithName(sharedVolume).
			WithEmptyDir(corev1ac.EmptyDirVolumeSource().WithMedium(corev1.StorageMediumMemory)),
		// Readable for every container that mounts it. Only the adapter does: the files
		// belong to root, and it does not run as root.
		corev1ac.Volume().WithName(keysVolume).
			WithSecret(corev1ac.SecretVolumeSource().WithSecretName(KeysSecretName(in.Server)).WithDefaultMode(0o444).WithItems(
				corev1ac.KeyToPath().WithKey(adapterapi.KeysCurrent).WithPath(adapterapi.KeysCurrent),
				corev1ac.KeyToPath().WithKey(adapterapi.KeysAccepted).WithPath(adapterapi.KeysAccepted))),
		// A pod does not start without it: there is no other list of hosts. All of its entries
		// are mounted, so that an entry more does not change the template.
		corev1ac.Volume().WithName(settingsVolume).
			WithConfigMap(corev1ac.ConfigMapVolumeSource().WithName(SettingsName(in.Server)).WithDefaultMode(0o444)),
	}
	if needsHome(in) {
		all = append(all, corev1ac.Volume().WithName(homeVolume).WithEmptyDir(corev1ac.EmptyDirVolumeSource()))
	}
	if needsTmp(in) {
		all = append(all, corev1ac.Volume().WithName(tmpVolume).WithEmptyDir(corev1ac.EmptyDirVolumeSource()))
	}
	if needsToken(in) {
		all = append(all, corev1ac.Volume().WithName(tokenVolume).WithProjected(tokenSources()))
	}
	return all
}

// tokenSources are what Kubernetes puts into a container that has a token. Were it
// asked to do so, it would put them into the adapter's container, too.
func tokenSources() *corev1ac.ProjectedVolumeSourceApplyConfiguration {
	const lifetime = 3607 // seconds; what Kubernetes asks for
	return corev1ac.ProjectedVolumeSource().WithSources(
		corev1ac.VolumeProjection().WithServiceAccountToken(
			corev1ac.ServiceAccountTokenProjection().WithPath("token").WithExpirationSeconds(lifetime)),
		corev1ac.VolumeProjection().WithConfigMap(
			corev1ac.ConfigMapProjection().WithName("kube-root-ca.crt").
				WithItems(corev1ac.KeyToPath().WithKey("ca.crt").WithPath("ca.crt"))),
		corev1ac.VolumeProjection().WithDownwardAPI(
			corev1ac.DownwardAPIProjection().WithItems(corev1ac.DownwardAPIVolumeFile().WithPath("namespace").
				WithFieldRef(corev1ac.ObjectFieldSelector().WithAPIVersion("v1").WithFieldPath("metadata.namespace")))),
	)
}

// needsHome reports whether the manager sets HOME. If a user sets HOME by envFrom, it has no
// effect, because Kubernetes prefers env. The manager cannot know of it before the pod starts.
func needsHome(in Input) bool {
	for i := range in.Server.Spec.Env {
		if in.Server.Spec.Env[i].Name == "HOME" {
			return false
		}
	}
	return in.Image == nil || in.Image.Home == ""
}

func needsTmp(in Input) bool { return !mounts(in.Server, tmpDir) }

func needsToken(in Input) bool {
	template := in.Server.Spec.PodTemplate
	return template != nil && template.AutomountServiceAccountToken && !mounts(in.Server, tokenDir)
}

// mounts says whether the user mounts something at exactly that directory.
func mounts(server *mcpv1alpha1.MCPServer, dir string) bool {
	for i := range server.Spec.VolumeMounts {
		if path.Clean(server.Spec.VolumeMounts[i].MountPath) == dir {
			return true
		}
	}
	return false
}

func drainTimeout(server *mcpv1alpha1.MCPServer) time.Duration {
	if timeout := server.Spec.Session.DrainTimeout; timeout != nil {
		return timeout.Duration
	}
	if isStdio(server) {
		return stdioDrainTimeout
	}
	return httpDrainTimeout
}

// defaultStartTimeout is that of a spec that does not say, as its comments promise.
const defaultStartTimeout = 60 * time.Second

// StartTimeout is how long a process of the server may take until it answers.
func StartTimeout(server *mcpv1alpha1.MCPServer) time.Duration {
	if timeout := server.Spec.Session.StartTimeout; timeout != nil {
		return timeout.Duration
	}
	return defaultStartTimeout
}

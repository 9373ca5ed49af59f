package workload

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/option"
)

const (
	clientPortName = "mcp"
	adminPortName  = "admin"
	peerPortName   = "peers"

	// adapterPath is the adapter's program in its image.
	adapterPath = "/adapter"
	keysDir     = "/etc/slipway/keys"
	settingsDir = "/etc/slipway/settings"

	// stuckGraceSeconds is how long an adapter may take to end that its liveness probe has given up.
	// It does not end by itself, and its clients must not wait for as long as a drain may take.
	stuckGraceSeconds = 60
)

// adapterContainer is the native sidecar that clients talk to. The hook that puts the
// launcher into the shared volume ends before the server's container begins. It is
// installed for HTTP servers, too: their hook waits for the adapter by it.
func adapterContainer(in Input, p *parts, user user) (*corev1ac.ContainerApplyConfiguration, error) {
	resources := adapterResources(p)
	args, err := adapterArgs(in, p, user, memoryLimit(resources))
	if err != nil {
		return nil, err
	}
	container := corev1ac.Container().
		WithName(mcpv1alpha1.ContainerAdapter).
		WithImage(in.Adapter.Image).
		WithRestartPolicy(corev1.ContainerRestartPolicyAlways).
		WithArgs(args...).
		WithEnv(fieldVariable("POD_UID", "metadata.uid"), fieldVariable("POD_IP", "status.podIP")).
		WithPorts(
			corev1ac.ContainerPort().WithName(clientPortName).WithProtocol(corev1.ProtocolTCP).WithContainerPort(mcpv1alpha1.AdapterPort),
			corev1ac.ContainerPort().WithName(adminPortName).WithProtocol(corev1.ProtocolTCP).WithContainerPort(mcpv1alpha1.AdapterAdminPort),
			corev1ac.ContainerPort().WithName(peerPortName).WithProtocol(corev1.ProtocolTCP).WithContainerPort(mcpv1alpha1.AdapterPeerPort)).
		WithLifecycle(corev1ac.Lifecycle().
			WithPostStart(execHook(adapterPath, "install", sharedDir)).
			WithPreStop(execHook(adapterPath, "drain"))).
		// The adapter holds the answer back until there is something to say, so that a pod
		// is ready the moment its server is.
		// The failures meet promise.Broken: see the times of the keeper.
		WithReadinessProbe(adminProbe("/readyz?wait=1.8s").WithPeriodSeconds(2).WithFailureThreshold(adapterapi.UnreadyAnswers)).
		WithLivenessProbe(adminProbe("/livez").WithPeriodSeconds(10).WithFailureThreshold(3).WithTerminationGracePeriodSeconds(stuckGraceSeconds)).
		WithSecurityContext(adapterSecurity(in)).
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError).
		WithResources(resources).
		WithVolumeMounts(
			corev1ac.VolumeMount().WithName(sharedVolume).WithMountPath(sharedDir),
			corev1ac.VolumeMount().WithName(keysVolume).WithMountPath(keysDir).WithReadOnly(true),
			corev1ac.VolumeMount().WithName(settingsVolume).WithMountPath(settingsDir).WithReadOnly(true))
	if in.Adapter.PullPolicy != "" {
		container.WithImagePullPolicy(in.Adapter.PullPolicy)
	}
	return container, nil
}

func fieldVariable(name, field string) *corev1ac.EnvVarApplyConfiguration {
	return corev1ac.EnvVar().WithName(name).WithValueFrom(corev1ac.EnvVarSource().
		WithFieldRef(corev1ac.ObjectFieldSelector().WithAPIVersion("v1").WithFieldPath(field)))
}

func adminProbe(path string) *corev1ac.ProbeApplyConfiguration {
	return corev1ac.Probe().WithTimeoutSeconds(2).
		WithHTTPGet(corev1ac.HTTPGetAction().WithPath(path).WithPort(intstr.FromString(adminPortName)))
}

// adapterResources are those of the spec, or what its comment promises. By default the CPU
// has no limit, because a throttled adapter delays every call of the pod. The default limits
// of messages just fit into the default memory.
func adapterResources(p *parts) *corev1ac.ResourceRequirementsApplyConfiguration {
	if p.Adapter.Resources != nil {
		return p.Adapter.Resources
	}
	return corev1ac.ResourceRequirements().
		WithRequests(corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("10m"),
			corev1.ResourceMemory: resource.MustParse("32Mi"),
		}).
		WithLimits(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")})
}

// mostMemory is the largest limit that the adapter takes. It has no use for more.
const mostMemory = 1 << 40

// memoryLimit is how many bytes of memory a container may use. 0 is no limit, for Kubernetes
// and for the adapter.
func memoryLimit(resources *corev1ac.ResourceRequirementsApplyConfiguration) int64 {
	if resources.Limits == nil {
		return 0
	}
	return min(resources.Limits.Memory().Value(), mostMemory)
}

// arguments are those of the adapter. What the spec and the manager's defaults leave out is left to
// the adapter, whose defaults are those that the spec's comments promise.
type arguments []string

// add adds a flag. Only POD_UID and POD_IP are replaced by Kubernetes.
func (a *arguments) add(flag string, value any) {
	*a = append(*a, literal(fmt.Sprintf("%s=%v", flag, value)))
}

func adapterArgs(in Input, p *parts, user user, memory int64) ([]string, error) {
	a := arguments{
		"serve",
		fmt.Sprintf("--listen=:%d", mcpv1alpha1.AdapterPort),
		fmt.Sprintf("--admin-listen=:%d", mcpv1alpha1.AdapterAdminPort),
		fmt.Sprintf("--peer-listen=:%d", mcpv1alpha1.AdapterPeerPort),
		"--socket=" + socketPath,
		"--keys-dir=" + keysDir,
		"--settings-dir=" + settingsDir,
		"--pod-uid=$(POD_UID)",
		"--pod-ip=$(POD_IP)",
	}
	if user.known != nil {
		a.add("--server-uid", *user.known)
	}
	a.transport(in.Server)
	spec := map[string]any{"session": p.Session, "adapter": p.Adapter.fields}
	for o := range option.All() {
		switch o {
		case option.DrainTimeout:
			a.add(o.Flag, drainTimeout(in.Server))
			a.add("--settle-time", settleTime)
		case option.MemoryLimit:
			if memory > 0 {
				a.add(o.Flag, memory)
			}
		default:
			if err := a.field(o, spec); err != nil {
				return nil, err
			}
		}
	}
	return a, nil
}

// field adds the flag of a field that needs no rules of its own.
func (a *arguments) field(o option.Option, spec map[string]any) error {
	if o.As != option.AsItIs && o.As != option.AsBytes {
		return nil
	}
	switch value := valueAt(spec, strings.TrimPrefix(o.Field, "spec.")).(type) {
	case string:
		if o.As == option.AsItIs {
			a.add(o.Flag, value)
			return nil
		}
		size, err := resource.ParseQuantity(value)
		if err != nil {
			return fmt.Errorf("parse %s: %w", o.Field, err)
		}
		a.add(o.Flag, size.Value())
	case float64:
		a.add(o.Flag, int64(value)) // the API has no fractions, and nothing that a float64 rounds
	case bool:
		if value {
			a.add(o.Flag, value)
		}
	}
	return nil
}

// valueAt returns what decoded JSON has at a path with dots; nil if it has nothing there.
func valueAt(object map[string]any, path string) any {
	var value any = object
	for name := range strings.SplitSeq(path, ".") {
		members, _ := value.(map[string]any)
		value = members[name]
	}
	return value
}

// transport says what the server speaks. Framing, isolation and warm processes are for stdio
// servers only: the adapter refuses them with others.
func (a *arguments) transport(server *mcpv1alpha1.MCPServer) {
	transport := &server.Spec.Transport
	a.add(option.Transport.Flag, transport.Type)
	if !isStdio(server) {
		a.add(option.Upstream.Flag, upstream(server))
		a.sessions(transport)
		return
	}
	if transport.Stdio != nil && transport.Stdio.Framing == mcpv1alpha1.FramingContentLength {
		a.add(option.Framing.Flag, transport.Stdio.Framing)
	}
	a.sessions(transport)
	if isolation := server.Spec.Session.Isolation; isolation != "" {
		a.add(option.Isolation.Flag, isolation)
	}
	if warm := server.Spec.Session.Warm; warm != nil {
		a.add(option.Warm.Flag, *warm)
	}
}

// sessions pins what the server speaks. Auto is what the adapter does anyway, and an sse server
// always has sessions.
func (a *arguments) sessions(transport *mcpv1alpha1.Transport) {
	switch transport.Sessions {
	case mcpv1alpha1.ServerSessionsStateful, mcpv1alpha1.ServerSessionsStateless:
		if transport.Type != mcpv1alpha1.TransportSSE {
			a.add(option.Sessions.Flag, transport.Sessions)
		}
	case mcpv1alpha1.ServerSessionsAuto, "":
	}
}

// upstream is the URL of a server that speaks HTTP, for the adapter beside it.
func upstream(server *mcpv1alpha1.MCPServer) string {
	path := "/mcp"
	switch transport := &server.Spec.Transport; {
	case transport.StreamableHTTP != nil:
		path = cmp.Or(string(transport.StreamableHTTP.Path), path)
	case transport.SSE != nil:
		path = cmp.Or(string(transport.SSE.Path), "/sse")
	}
	base := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", serverPort(server))}
	if whole, err := url.Parse(base.String() + path); err == nil {
		return whole.String()
	}
	base.Path = path // which is not escaped as paths in URLs are
	return base.String()
}

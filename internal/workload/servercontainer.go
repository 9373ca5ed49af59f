package workload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

const (
	serverPortName = "server"

	// hookMargin is how much longer than the drain the server's hook waits, so that it
	// is the adapter who ends a drain. With the five seconds that the launcher gives
	// processes, and three for itself, it fits into afterDrain.
	hookMargin = 5 * time.Second
)

// serverContainer is the user's container. The launcher in it starts the command of a stdio
// server for each session, and that of an HTTP server once. An HTTP server whose command is
// not known is started by the container itself: it need not wait for a registry. Both wait
// for the adapter's drain before they end.
func serverContainer(in Input, p *parts, user user) (*corev1ac.ContainerApplyConfiguration, error) {
	spec := &in.Server.Spec
	container := corev1ac.Container().
		WithName(mcpv1alpha1.ContainerServer).
		WithImage(serverImage(in)).
		WithSecurityContext(mergeSecurity(in.Server, p.SecurityContext, user)).
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError).
		WithLifecycle(corev1ac.Lifecycle().WithPreStop(execHook(
			launcherPath, "drain", "--socket="+socketPath, "--deadline="+(settleTime+drainTimeout(in.Server)+hookMargin).String())))
	if !isStdio(in.Server) {
		container.WithPorts(corev1ac.ContainerPort().WithName(serverPortName).WithProtocol(corev1.ProtocolTCP).
			WithContainerPort(serverPort(in.Server)))
	}
	if usesLauncher(in) {
		words, err := launched(in)
		if err != nil {
			return nil, err
		}
		container.WithCommand(words...)
	} else {
		container.WithCommand(spec.Command...).WithArgs(spec.Args...)
	}
	if spec.ImagePullPolicy != "" {
		container.WithImagePullPolicy(spec.ImagePullPolicy)
	}
	if spec.WorkingDir != "" {
		container.WithWorkingDir(spec.WorkingDir)
	}
	if needsHome(in) { // first, so that the user's variables can refer to it
		container.WithEnv(corev1ac.EnvVar().WithName("HOME").WithValue(homeDir))
	}
	container.Env = append(container.Env, p.Env...)
	container.EnvFrom = p.EnvFrom
	container.Resources = p.Resources
	container.WithVolumeMounts(serverMounts(in)...)
	container.VolumeMounts = append(container.VolumeMounts, p.VolumeMounts...)
	return container, nil
}

// serverImage is the image that the container runs. If its own command is used, it must be
// the very image that the command was read from.
func serverImage(in Input) string {
	if len(in.Server.Spec.Command) == 0 && usesLauncher(in) && in.Image != nil && in.Image.Reference != "" {
		return in.Image.Reference
	}
	return in.Server.Spec.Image
}

// serverMounts are the volumes that the container has besides the user's. It can read
// the shared one, which is enough to connect and to execute.
func serverMounts(in Input) []*corev1ac.VolumeMountApplyConfiguration {
	all := []*corev1ac.VolumeMountApplyConfiguration{
		corev1ac.VolumeMount().WithName(sharedVolume).WithMountPath(sharedDir).WithReadOnly(true),
	}
	if needsHome(in) {
		all = append(all, corev1ac.VolumeMount().WithName(homeVolume).WithMountPath(homeDir))
	}
	if needsTmp(in) {
		all = append(all, corev1ac.VolumeMount().WithName(tmpVolume).WithMountPath(tmpDir))
	}
	if needsToken(in) {
		all = append(all, corev1ac.VolumeMount().WithName(tokenVolume).WithMountPath(tokenDir).WithReadOnly(true))
	}
	return all
}

// Incomplete says what the API server would not accept in the spec, or is empty. A spec that was
// stored before a field was renamed lacks what that field held.
func Incomplete(server *mcpv1alpha1.MCPServer) string {
	transport := &server.Spec.Transport
	switch {
	case transport.Type == mcpv1alpha1.TransportStreamableHTTP && transport.StreamableHTTP == nil:
		return "spec.transport.streamableHTTP.port must be set when spec.transport.type is streamable-http: it is the port that the server listens on"
	case transport.Type == mcpv1alpha1.TransportSSE && transport.SSE == nil:
		return "spec.transport.sse.port must be set when spec.transport.type is sse: it is the port that the server listens on"
	default:
		return ""
	}
}

// serverPort is the port of a server that speaks HTTP.
func serverPort(server *mcpv1alpha1.MCPServer) int32 {
	transport := &server.Spec.Transport
	switch {
	case transport.Type == mcpv1alpha1.TransportStreamableHTTP && transport.StreamableHTTP != nil:
		return int32(transport.StreamableHTTP.Port)
	case transport.Type == mcpv1alpha1.TransportSSE && transport.SSE != nil:
		return int32(transport.SSE.Port)
	default:
		return 0
	}
}

func execHook(words ...string) *corev1ac.LifecycleHandlerApplyConfiguration {
	return corev1ac.LifecycleHandler().WithExec(corev1ac.ExecAction().WithCommand(words...))
}

package workload

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

const (
	// adapterUser is the user, and group, of the adapter's image.
	adapterUser = 65532
	// defaultUser is what a server runs as when neither the spec nor the image names a
	// user that is certain not to be root.
	defaultUser = 1000
)

// defaultPodSecurity is what a pod is allowed when the user does not say otherwise.
func defaultPodSecurity() *corev1ac.PodSecurityContextApplyConfiguration {
	return corev1ac.PodSecurityContext().
		WithRunAsNonRoot(true).
		WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))
}

// defaultSecurity is what the server's container is allowed, besides what the pod is.
func defaultSecurity() *corev1ac.SecurityContextApplyConfiguration {
	return corev1ac.SecurityContext().
		WithAllowPrivilegeEscalation(false).
		WithCapabilities(corev1ac.Capabilities().WithDrop("ALL"))
}

// adapterSecurity is what the adapter is allowed. It depends on nothing that the spec says
// of the pod, except that an adapter whose user the cluster assigns runs as the user of the
// pod if the spec names one. That user is never root: the cluster assigns nothing to a pod
// of root.
func adapterSecurity(in Input) *corev1ac.SecurityContextApplyConfiguration {
	security := defaultSecurity().
		WithRunAsNonRoot(true).
		WithReadOnlyRootFilesystem(true).
		WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))
	if _, pod := given(in.Server); in.Users != UserAssigned || isRoot(pod.RunAsUser) {
		security.WithRunAsUser(adapterUser).WithRunAsGroup(adapterUser)
	}
	return security
}

// user says which user the server runs as.
type user struct {
	// set is what the container's runAsUser must be set to; nil leaves it as it is.
	set *int64
	// known is the user that the container is certain to run as; nil if nothing is
	// certain. A tag may point to an image with another user tomorrow.
	known *int64
}

// chooseUser decides which user the server runs as: the one that the spec names, for the
// container or else for the pod; or else the one that the cluster assigns, if it assigns
// any; or else the image's, if that is a number and not root; or else defaultUser. A spec
// that allows root and names no user has the image decide.
func chooseUser(in Input) user {
	container, pod := given(in.Server)
	if chosen := either(container.RunAsUser, pod.RunAsUser); chosen != nil {
		return user{known: chosen}
	}
	if in.Users == UserAssigned {
		return user{}
	}
	number, ok := imageUser(in)
	if ok {
		if either(container.RunAsGroup, pod.RunAsGroup) != nil {
			return user{set: &number, known: &number} // containerd takes no group without a user
		}
		if pinned(in) {
			return user{known: &number}
		}
		return user{}
	}
	if nonRoot := either(container.RunAsNonRoot, pod.RunAsNonRoot); nonRoot != nil && !*nonRoot {
		return user{}
	}
	return user{set: new(int64(defaultUser)), known: new(int64(defaultUser))}
}

// UserDependsOnImage says whether the server would run as another user if nothing were known of its
// image.
func UserDependsOnImage(in Input) bool {
	without := in
	without.Image = nil
	return !reflect.DeepEqual(chooseUser(in), chooseUser(without))
}

// imageUser is the user that the image names, if it is a number other than root's.
// A name says nothing: the kubelet cannot know whether it is root's.
func imageUser(in Input) (int64, bool) {
	if in.Image == nil {
		return 0, false
	}
	name, _, _ := strings.Cut(in.Image.User, ":")
	number, err := strconv.ParseUint(name, 10, 31)
	return int64(number), err == nil && number > 0
}

// pinned says whether the container runs the very image that was looked at.
func pinned(in Input) bool { return strings.Contains(serverImage(in), "@") }

// mergeSecurity completes the security context of the server's container, into which
// the user's was decoded: what the user says must not contradict our defaults, or the
// API server would refuse both.
func mergeSecurity(server *mcpv1alpha1.MCPServer, merged *corev1ac.SecurityContextApplyConfiguration, user user) *corev1ac.SecurityContextApplyConfiguration {
	container, _ := given(server)
	privileged := container.Privileged != nil && *container.Privileged
	if container.AllowPrivilegeEscalation == nil && (privileged || addsAdmin(&container)) {
		merged.AllowPrivilegeEscalation = nil
	}
	if privileged { // which is to have all capabilities, except for those that the user drops
		merged.Capabilities.Drop = nil
		if container.Capabilities != nil {
			merged.Capabilities.Drop = slices.Clone(container.Capabilities.Drop)
		}
		if merged.Capabilities.Add == nil && merged.Capabilities.Drop == nil {
			merged.Capabilities = nil
		}
	}
	if isRoot(container.RunAsUser) && container.RunAsNonRoot == nil {
		merged.WithRunAsNonRoot(false)
	}
	if user.set != nil {
		merged.WithRunAsUser(*user.set)
	}
	return merged
}

// mergePodSecurity does the same for the pod's.
func mergePodSecurity(server *mcpv1alpha1.MCPServer, merged *corev1ac.PodSecurityContextApplyConfiguration) {
	if _, pod := given(server); isRoot(pod.RunAsUser) && pod.RunAsNonRoot == nil {
		merged.WithRunAsNonRoot(false)
	}
}

// given are the security contexts as the user gave them.
func given(server *mcpv1alpha1.MCPServer) (container corev1.SecurityContext, pod corev1.PodSecurityContext) {
	if server.Spec.SecurityContext != nil {
		container = *server.Spec.SecurityContext
	}
	if template := server.Spec.PodTemplate; template != nil && template.SecurityContext != nil {
		pod = *template.SecurityContext
	}
	return container, pod
}

// addsAdmin says whether a container is given a capability that Kubernetes wants
// privilege escalation for.
func addsAdmin(container *corev1.SecurityContext) bool {
	return container.Capabilities != nil && slices.ContainsFunc(container.Capabilities.Add, func(name corev1.Capability) bool {
		return name == "CAP_SYS_ADMIN" || name == "SYS_ADMIN"
	})
}

func isRoot(id *int64) bool { return id != nil && *id == 0 }

// either is the first that is given.
func either[T any](first, second *T) *T {
	if first != nil {
		return first
	}
	return second
}

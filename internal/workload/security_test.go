package workload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/registry"
)

const testDigest = "registry.example/echo@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

// podOf renders a server's pod and decodes it as Kubernetes would.
func podOf(t *testing.T, in Input) corev1.PodSpec {
	t.Helper()
	template, err := PodTemplate(in)
	if err != nil {
		t.Fatal(err)
	}
	var decoded corev1.PodTemplateSpec
	if err := yaml.UnmarshalStrict(encode(t, template), &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded.Spec
}

func argument(args []string, flag string) string {
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--"+flag+"="); ok {
			return value
		}
	}
	return ""
}

func TestSecurity(t *testing.T) {
	const pod = `{runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}`
	for name, test := range map[string]struct {
		container, pod string // as the user gives them
		user           string // of the image
		image          string // in the spec, if it matters
		want, wantPod  string
		wantUID        string // that the adapter is told
	}{
		"nothing said": {
			want: `{runAsUser: 1000, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`, wantPod: pod, wantUID: "1000",
		},
		"number of the image behind a tag that may move": {
			user: "1001:users",
			want: `{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`, wantPod: pod,
		},
		"number of the image behind a digest": {
			user: "1001", image: testDigest,
			want: `{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`, wantPod: pod, wantUID: "1001",
		},
		"number of the image, and a group": {
			user: "1001", pod: `{runAsGroup: 5}`,
			want:    `{runAsUser: 1001, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`,
			wantPod: `{runAsGroup: 5, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}`, wantUID: "1001",
		},
		"name of the image": {
			user: "node",
			want: `{runAsUser: 1000, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`, wantPod: pod, wantUID: "1000",
		},
		"number beyond what Kubernetes takes": {
			user: "2147483648",
			want: `{runAsUser: 1000, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`, wantPod: pod, wantUID: "1000",
		},
		"user of the container": {
			container: `{runAsUser: 7}`, pod: `{runAsUser: 8}`, user: "1001",
			want:    `{runAsUser: 7, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`,
			wantPod: `{runAsUser: 8, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}`, wantUID: "7",
		},
		"user of the pod": {
			pod: `{runAsUser: 8}`, user: "1001",
			want:    `{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`,
			wantPod: `{runAsUser: 8, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}`, wantUID: "8",
		},
		"root": {
			container: `{runAsUser: 0}`,
			want:      `{runAsUser: 0, runAsNonRoot: false, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`, wantPod: pod, wantUID: "0",
		},
		"root that is not to be root": {
			container: `{runAsUser: 0, runAsNonRoot: true}`,
			want:      `{runAsUser: 0, runAsNonRoot: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`, wantPod: pod, wantUID: "0",
		},
		"root of the pod": {
			pod:     `{runAsUser: 0}`,
			want:    `{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`,
			wantPod: `{runAsUser: 0, runAsNonRoot: false, seccompProfile: {type: RuntimeDefault}}`, wantUID: "0",
		},
		"who the image says, root or not": {
			container: `{runAsNonRoot: false}`, user: "node",
			want: `{runAsNonRoot: false, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`, wantPod: pod,
		},
		"who the image says, said of the pod": {
			pod:     `{runAsNonRoot: false}`,
			want:    `{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`,
			wantPod: `{runAsNonRoot: false, seccompProfile: {type: RuntimeDefault}}`,
		},
		"privileged": {
			container: `{privileged: true}`,
			want:      `{runAsUser: 1000, privileged: true}`, wantPod: pod, wantUID: "1000",
		},
		"privileged but for one": {
			container: `{privileged: true, capabilities: {drop: [NET_RAW]}}`,
			want:      `{runAsUser: 1000, privileged: true, capabilities: {drop: [NET_RAW]}}`, wantPod: pod, wantUID: "1000",
		},
		"not privileged": {
			container: `{privileged: false}`,
			want:      `{runAsUser: 1000, privileged: false, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`, wantPod: pod, wantUID: "1000",
		},
		"administrator": {
			container: `{capabilities: {add: [CAP_SYS_ADMIN]}}`,
			want:      `{runAsUser: 1000, capabilities: {add: [CAP_SYS_ADMIN], drop: [ALL]}}`, wantPod: pod, wantUID: "1000",
		},
		"capabilities kept": {
			container: `{capabilities: {drop: [NET_RAW]}, allowPrivilegeEscalation: true}`,
			want:      `{runAsUser: 1000, allowPrivilegeEscalation: true, capabilities: {drop: [NET_RAW]}}`, wantPod: pod, wantUID: "1000",
		},
		"seccomp": {
			container: `{seccompProfile: {type: Unconfined}}`, pod: `{seccompProfile: {type: Localhost, localhostProfile: a.json}}`,
			want:    `{runAsUser: 1000, seccompProfile: {type: Unconfined}, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`,
			wantPod: `{runAsNonRoot: true, seccompProfile: {type: Localhost, localhostProfile: a.json}}`, wantUID: "1000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := readInput(t, "user-unresolved")
			in.Image = &registry.Image{Reference: testDigest, User: test.user}
			if test.image != "" {
				in.Server.Spec.Image = test.image
			}
			in.Server.Spec.SecurityContext = decode[corev1.SecurityContext](t, test.container)
			in.Server.Spec.PodTemplate = &mcpv1alpha1.PodTemplate{SecurityContext: decode[corev1.PodSecurityContext](t, test.pod)}
			got := podOf(t, in)
			if diff := cmp.Diff(decode[corev1.SecurityContext](t, test.want), got.Containers[0].SecurityContext); diff != "" {
				t.Errorf("container (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(decode[corev1.PodSecurityContext](t, test.wantPod), got.SecurityContext); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
			if uid := argument(got.InitContainers[0].Args, "server-uid"); uid != test.wantUID {
				t.Errorf("the adapter is told user %q, want %q", uid, test.wantUID)
			}
			restricted(t, &got.InitContainers[0])
		})
	}
}

// Where the cluster assigns users, pods name none but those that their spec names.
func TestAssignedUsers(t *testing.T) {
	const (
		server  = `{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`
		adapter = `{runAsNonRoot: true, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}`
		fixed   = `{runAsUser: 65532, runAsGroup: 65532, runAsNonRoot: true, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}`
		pod     = `{runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}`
	)
	for name, test := range map[string]struct {
		container, pod             string // as the spec has them
		image                      *registry.Image
		want, wantAdapter, wantPod string
		wantUID                    string // that the adapter is told
	}{
		"nothing said":          {"", "", nil, server, adapter, pod, ""},
		"number of the image":   {"", "", &registry.Image{Reference: testDigest, User: "1001"}, server, adapter, pod, ""},
		"name of the image":     {"", "", &registry.Image{Reference: testDigest, User: "node"}, server, adapter, pod, ""},
		"user of the container": {`{runAsUser: 1000660000}`, "", nil, `{runAsUser: 1000660000, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`, adapter, pod, "1000660000"},
		"user of the pod":       {"", `{runAsUser: 7, fsGroup: 8}`, nil, server, adapter, `{runAsUser: 7, fsGroup: 8, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}`, "7"},
		"pod of root":           {"", `{runAsUser: 0}`, nil, server, fixed, `{runAsUser: 0, runAsNonRoot: false, seccompProfile: {type: RuntimeDefault}}`, "0"},
		"root where it is fine": {`{runAsNonRoot: false}`, "", nil, `{runAsNonRoot: false, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`, adapter, pod, ""},
		"group, and no user":    {`{runAsGroup: 5}`, "", &registry.Image{Reference: testDigest, User: "1001"}, `{runAsGroup: 5, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`, adapter, pod, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := readInput(t, "user-unresolved")
			in.Users, in.Image = UserAssigned, test.image
			in.Server.Spec.SecurityContext = decode[corev1.SecurityContext](t, test.container)
			in.Server.Spec.PodTemplate = &mcpv1alpha1.PodTemplate{SecurityContext: decode[corev1.PodSecurityContext](t, test.pod)}
			got := podOf(t, in)
			if diff := cmp.Diff(decode[corev1.SecurityContext](t, test.want), got.Containers[0].SecurityContext); diff != "" {
				t.Errorf("server (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(decode[corev1.SecurityContext](t, test.wantAdapter), got.InitContainers[0].SecurityContext); diff != "" {
				t.Errorf("adapter (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(decode[corev1.PodSecurityContext](t, test.wantPod), got.SecurityContext); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
			if uid := argument(got.InitContainers[0].Args, "server-uid"); uid != test.wantUID {
				t.Errorf("the adapter expects user %q, want %q", uid, test.wantUID)
			}
		})
	}
}

func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	if text == "" {
		return nil
	}
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// restricted sees that a container by itself satisfies Pod Security "restricted".
func restricted(t *testing.T, container *corev1.Container) {
	t.Helper()
	want := decode[corev1.SecurityContext](t, `{runAsUser: 65532, runAsGroup: 65532, runAsNonRoot: true, readOnlyRootFilesystem: true,
		allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}`)
	if diff := cmp.Diff(want, container.SecurityContext); diff != "" {
		t.Errorf("%s (-want +got):\n%s", container.Name, diff)
	}
}

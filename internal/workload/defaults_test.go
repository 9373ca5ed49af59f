package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

func memoryLimits(memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}}
}

// What a default fills gives the pods that a spec with the same value has. What a spec sets is left
// as it is, and the inputs know nothing of defaults.
func TestDefaults(t *testing.T) {
	defaults := Defaults{
		Resources: memoryLimits("1Gi"), AdapterResources: memoryLimits("512Mi"),
		Limits: mcpv1alpha1.AdapterLimits{Body: new(resource.MustParse("4Mi")), CallsPerSession: new(int32(64))},
	}
	for name, test := range map[string]struct {
		given, want func(*mcpv1alpha1.MCPServerSpec) // what the spec has, and what pods have on top of it
		fields      []string
	}{
		"nothing is set": {
			given: func(*mcpv1alpha1.MCPServerSpec) {},
			want: func(spec *mcpv1alpha1.MCPServerSpec) {
				spec.Resources, spec.Adapter.Resources, spec.Adapter.Limits = defaults.Resources, &defaults.AdapterResources, &defaults.Limits
			},
			fields: []string{"spec.resources", "spec.adapter.resources", "spec.adapter.limits.body", "spec.adapter.limits.callsPerSession"},
		},
		"a part of resources is all of them": {
			given: func(spec *mcpv1alpha1.MCPServerSpec) {
				spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
				spec.Adapter.Resources = &corev1.ResourceRequirements{}
			},
			want:   func(spec *mcpv1alpha1.MCPServerSpec) { spec.Adapter.Limits = &defaults.Limits },
			fields: []string{"spec.adapter.limits.body", "spec.adapter.limits.callsPerSession"},
		},
		"each limit is by itself": {
			given: func(spec *mcpv1alpha1.MCPServerSpec) {
				spec.Resources, spec.Adapter.Resources = memoryLimits("2Gi"), new(memoryLimits("2Gi"))
				spec.Adapter.Limits = &mcpv1alpha1.AdapterLimits{CallsPerSession: new(int32(1)), ConcurrentStarts: new(int32(3))}
			},
			want: func(spec *mcpv1alpha1.MCPServerSpec) {
				limits := *spec.Adapter.Limits
				limits.Body = defaults.Limits.Body
				spec.Adapter.Limits = &limits
			},
			fields: []string{"spec.adapter.limits.body"},
		},
		"everything is set": {
			given: func(spec *mcpv1alpha1.MCPServerSpec) {
				spec.Resources, spec.Adapter.Resources = memoryLimits("2Gi"), new(memoryLimits("2Gi"))
				spec.Adapter.Limits = &mcpv1alpha1.AdapterLimits{Body: new(resource.MustParse("1Mi")), CallsPerSession: new(int32(1))}
			},
			want: func(*mcpv1alpha1.MCPServerSpec) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := readInput(t, "minimal")
			test.given(&in.Server.Spec)
			before, inputs := in.Server.DeepCopy(), InputsOf(in.Server, "r")
			explicit := in
			explicit.Server = in.Server.DeepCopy()
			test.want(&explicit.Server.Spec)

			in.Defaults = defaults
			if diff := cmp.Diff(podOf(t, explicit), podOf(t, in)); diff != "" {
				t.Errorf("pods (-with an explicit spec +with defaults):\n%s", diff)
			}
			if diff := cmp.Diff(test.fields, defaults.Fields(in.Server)); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, in.Server); diff != "" {
				t.Errorf("the server was changed (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(inputs, InputsOf(in.Server, "r")); diff != "" {
				t.Errorf("inputs (-before +after):\n%s", diff)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	bounds := Bounds{Replicas: 3, SessionsPerPod: 20, Resources: memoryLimits("1Gi").Limits}
	for name, test := range map[string]struct {
		change   func(*mcpv1alpha1.MCPServerSpec)
		defaults Defaults
		bounds   Bounds
		want     string
	}{
		"no bounds": {func(spec *mcpv1alpha1.MCPServerSpec) { spec.Replicas = new(int32(1000)) }, Defaults{}, Bounds{}, ""},
		"at a bound": {func(spec *mcpv1alpha1.MCPServerSpec) {
			spec.Replicas, spec.Resources = new(int32(3)), memoryLimits("1Gi")
		}, Defaults{}, bounds, ""},
		"by defaults": {func(*mcpv1alpha1.MCPServerSpec) {}, Defaults{Resources: memoryLimits("512Mi")}, bounds, ""},
		"replicas": {
			func(spec *mcpv1alpha1.MCPServerSpec) { spec.Replicas = new(int32(4)) }, Defaults{Resources: memoryLimits("1Mi")}, bounds,
			"spec.replicas is 4, and this cluster allows at most 3 (servers.bounds.replicas in the manager's configuration): lower it, or the maxReplicas of its autoscaler",
		},
		"replicas of a server that is suspended": {
			func(spec *mcpv1alpha1.MCPServerSpec) { spec.Replicas, spec.Suspend = new(int32(4)), true }, Defaults{Resources: memoryLimits("1Mi")}, bounds, "",
		},
		"sessions": {
			func(spec *mcpv1alpha1.MCPServerSpec) { spec.Session.MaxPerPod = new(int32(21)) }, Defaults{Resources: memoryLimits("1Mi")}, bounds,
			"spec.session.maxPerPod is 21, and this cluster allows at most 20 (servers.bounds.sessionsPerPod in the manager's configuration): lower it",
		},
		"memory": {
			func(spec *mcpv1alpha1.MCPServerSpec) { spec.Resources = memoryLimits("1025Mi") }, Defaults{}, bounds,
			"spec.resources.limits.memory is 1025Mi, and this cluster allows at most 1Gi (servers.bounds.resources in the manager's configuration): lower it",
		},
		"no limit": {
			func(*mcpv1alpha1.MCPServerSpec) {}, Defaults{}, bounds,
			"spec.resources.limits.memory is not set, and this cluster allows at most 1Gi (servers.bounds.resources in the manager's configuration): set it",
		},
		"a limit that is none": {
			func(spec *mcpv1alpha1.MCPServerSpec) { spec.Resources = memoryLimits("0") }, Defaults{}, bounds,
			"spec.resources.limits.memory is not set, and this cluster allows at most 1Gi (servers.bounds.resources in the manager's configuration): set it",
		},
		"a resource that only some have": {
			func(*mcpv1alpha1.MCPServerSpec) {}, Defaults{}, Bounds{Resources: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}}, "",
		},
		"too much of it": {
			func(spec *mcpv1alpha1.MCPServerSpec) {
				spec.Resources.Limits = corev1.ResourceList{"example.com/gpu": resource.MustParse("2")}
			}, Defaults{}, Bounds{Resources: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}},
			"spec.resources.limits.example.com/gpu is 2, and this cluster allows at most 1 (servers.bounds.resources in the manager's configuration): lower it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := readInput(t, "minimal").Server
			test.change(&server.Spec)
			if got := test.bounds.Exceeded(server, test.defaults); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// Servers are the defaults and bounds of MCPServers.
type Servers struct {
	// defaults fill in fields that MCPServers leave out. status.template.defaults of an MCPServer lists the filled
	// fields.
	Defaults Defaults `json:"defaults"`

	// bounds are the maximum values that MCPServers may request. An MCPServer that exceeds one is not accepted.
	Bounds Bounds `json:"bounds"`
}

// Defaults are for what MCPServers leave out. Their names are those of the spec.
type Defaults struct {
	// resources apply to MCPServers that set no part of spec.resources.
	Resources corev1.ResourceRequirements `json:"resources"`

	// adapter holds the defaults of spec.adapter.
	Adapter AdapterDefaults `json:"adapter"`
}

// AdapterDefaults are defaults of spec.adapter.
type AdapterDefaults struct {
	// resources apply to MCPServers that leave out spec.adapter.resources. A memory limit must be at least 256Mi.
	Resources corev1.ResourceRequirements `json:"resources"`

	// limits apply to MCPServers that leave them out of spec.adapter.limits, each field by itself. body may be at
	// most 32Mi, and line at most 64Mi.
	Limits mcpv1alpha1.AdapterLimits `json:"limits"`
}

// Bounds are the most that MCPServers may ask for.
type Bounds struct {
	// replicas is the maximum of spec.replicas. 0 means no bound.
	Replicas int32 `json:"replicas"`

	// sessionsPerPod is the maximum of spec.session.maxPerPod. 0 means no bound.
	SessionsPerPod int32 `json:"sessionsPerPod"`

	// resources are the maximum of spec.resources.limits, by resource. An MCPServer without a limit for a bounded
	// resource is not accepted either.
	Resources corev1.ResourceList `json:"resources"`
}

// The largest messages, and the least memory that holds them, of an MCPServer that sets neither. A
// default beyond these would keep adapters from starting whose MCPServers set the other one: the API
// server knows nothing of this file.
var (
	mostBody    = resource.MustParse("32Mi")
	mostLine    = resource.MustParse("64Mi")
	leastMemory = resource.MustParse("256Mi")
)

func (s Servers) validate() error {
	adapter := s.Defaults.Adapter
	problems := []error{
		requirements("servers.defaults.resources", s.Defaults.Resources),
		requirements("servers.defaults.adapter.resources", adapter.Resources),
		limits("servers.defaults.adapter.limits", adapter.Limits),
		amounts("servers.bounds.resources", s.Bounds.Resources),
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if most, ok := s.Bounds.Resources[name]; ok && most.IsZero() {
			problems = append(problems, fmt.Errorf("servers.bounds.resources.%s must be positive: a container cannot do without; leave it out for no bound", name))
		}
	}
	if memory := adapter.Resources.Limits.Memory(); !memory.IsZero() && memory.Cmp(leastMemory) < 0 {
		problems = append(problems, fmt.Errorf("servers.defaults.adapter.resources.limits.memory must be at least %s, not %s: "+
			"MCPServers that leave out adapter.resources may have messages that need as much", leastMemory.String(), memory))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Bounds.Resources)) {
		most := s.Bounds.Resources[name]
		if limit, ok := s.Defaults.Resources.Limits[name]; ok && limit.Cmp(most) > 0 {
			problems = append(problems, fmt.Errorf("servers.defaults.resources.limits.%s (%s) must not be more than servers.bounds.resources.%s (%s): "+
				"no MCPServer with the default would be accepted", name, limit.String(), name, most.String()))
		}
	}
	for field, number := range map[string]int32{"servers.bounds.replicas": s.Bounds.Replicas, "servers.bounds.sessionsPerPod": s.Bounds.SessionsPerPod} {
		if number < 0 {
			problems = append(problems, fmt.Errorf("%s must not be negative: it is %d", field, number))
		}
	}
	return errors.Join(problems...)
}

// requirements checks what the API server would refuse in the pods of every MCPServer.
func requirements(field string, r corev1.ResourceRequirements) error {
	problems := []error{amounts(field+".requests", r.Requests), amounts(field+".limits", r.Limits)}
	if len(r.Claims) > 0 {
		problems = append(problems, fmt.Errorf("%s.claims must not be set: an MCPServer has nothing that they could name", field))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request, limit := r.Requests[name], r.Limits[name]
		_, isLimited := r.Limits[name]
		if isExtended(name) && request.Cmp(limit) != 0 {
			problems = append(problems, fmt.Errorf("%s.requests.%s (%s) must be the limit (%s)", field, name, request.String(), limit.String()))
		} else if isLimited && request.Cmp(limit) > 0 {
			problems = append(problems, fmt.Errorf("%s.requests.%s (%s) must not be more than the limit (%s)", field, name, request.String(), limit.String()))
		}
	}
	return errors.Join(problems...)
}

// isExtended says whether a resource is one that a device plugin or an administrator offers.
func isExtended(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") }

// isNative says whether a resource is one that every node has.
func isNative(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func amounts(field string, list corev1.ResourceList) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if !isExtended(name) && !isNative(name) {
			problems = append(problems, fmt.Errorf("%s.%s is no resource of Kubernetes: cpu, memory, ephemeral-storage, or a name such as example.com/gpu", field, name))
		}
		if amount := list[name]; amount.Sign() < 0 {
			problems = append(problems, fmt.Errorf("%s.%s must not be negative: it is %s", field, name, amount.String()))
		}
	}
	return errors.Join(problems...)
}

// mostNumber and mostBytes are more than the API takes of any limit, and no more than adapters take.
const (
	mostNumber = 16384
	mostBytes  = 1 << 30
)

// limits refuses what would keep adapters from starting. It goes through all limits that there are. The
// API server checks more closely what a spec has.
func limits(field string, l mcpv1alpha1.AdapterLimits) error {
	sizes := map[string]struct{ least, most resource.Quantity }{
		"body": {resource.MustParse("1Ki"), mostBody},
		"line": {resource.MustParse("1Ki"), mostLine},
	}
	var problems []error
	value := reflect.ValueOf(l)
	for i, member := range reflect.VisibleFields(value.Type()) {
		name, _, _ := strings.Cut(member.Tag.Get("json"), ",")
		switch given := value.Field(i).Interface().(type) {
		case *int32:
			if given != nil && (*given < 1 || *given > mostNumber) {
				problems = append(problems, fmt.Errorf("%s.%s must be from 1 to %d, not %d", field, name, mostNumber, *given))
			}
		case *resource.Quantity:
			bounds, ok := sizes[name]
			if !ok {
				bounds.most = *resource.NewQuantity(mostBytes, resource.BinarySI)
			}
			if given != nil && (given.Cmp(bounds.least) < 0 || given.Cmp(bounds.most) > 0) {
				problems = append(problems, fmt.Errorf("%s.%s must be from %s to %s, not %s", field, name, bounds.least.String(), bounds.most.String(), given))
			}
		}
	}
	return errors.Join(problems...)
}

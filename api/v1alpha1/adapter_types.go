package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Adapter configures the sidecar that clients talk to. Its rules refuse what checkMemory of
// internal/sidecar refuses, before a pod does. docs/decisions/2026-11-15-api-validation.md says
// why they are written as they are.
//
// +kubebuilder:validation:XValidation:rule="!has(self.resources) ? (has(self.limits) && has(self.limits.body) ? (type(self.limits.body) == int ? double(self.limits.body) : quantity(self.limits.body).asApproximateFloat()) : 33554432.0) <= 67108864.0 : !has(self.resources.limits) || !('memory' in self.resources.limits) || (type(self.resources.limits['memory']) == int ? self.resources.limits['memory'] <= 0 || double(self.resources.limits['memory']) >= 4.0 * (has(self.limits) && has(self.limits.body) ? (type(self.limits.body) == int ? double(self.limits.body) : quantity(self.limits.body).asApproximateFloat()) : 33554432.0) : sign(quantity(self.resources.limits['memory'])) <= 0 || quantity(self.resources.limits['memory']).asApproximateFloat() >= 4.0 * (has(self.limits) && has(self.limits.body) ? (type(self.limits.body) == int ? double(self.limits.body) : quantity(self.limits.body).asApproximateFloat()) : 33554432.0))",messageExpression="'adapter.limits.body %s %d bytes, which needs adapter.resources.limits.memory of at least %dMi: raise the memory, or lower adapter.limits.body'.format([has(self.limits) && has(self.limits.body) ? 'is' : 'defaults to', int((has(self.limits) && has(self.limits.body) ? (type(self.limits.body) == int ? double(self.limits.body) : quantity(self.limits.body).asApproximateFloat()) : 33554432.0)), (int((has(self.limits) && has(self.limits.body) ? (type(self.limits.body) == int ? double(self.limits.body) : quantity(self.limits.body).asApproximateFloat()) : 33554432.0)) + 262143) / 262144])",fieldPath=".limits.body"
// +kubebuilder:validation:XValidation:rule="!has(self.resources) ? (has(self.limits) && has(self.limits.line) ? (type(self.limits.line) == int ? double(self.limits.line) : quantity(self.limits.line).asApproximateFloat()) : 67108864.0) <= 67108864.0 : !has(self.resources.limits) || !('memory' in self.resources.limits) || (type(self.resources.limits['memory']) == int ? self.resources.limits['memory'] <= 0 || double(self.resources.limits['memory']) >= 4.0 * (has(self.limits) && has(self.limits.line) ? (type(self.limits.line) == int ? double(self.limits.line) : quantity(self.limits.line).asApproximateFloat()) : 67108864.0) : sign(quantity(self.resources.limits['memory'])) <= 0 || quantity(self.resources.limits['memory']).asApproximateFloat() >= 4.0 * (has(self.limits) && has(self.limits.line) ? (type(self.limits.line) == int ? double(self.limits.line) : quantity(self.limits.line).asApproximateFloat()) : 67108864.0))",messageExpression="'adapter.limits.line %s %d bytes, which needs adapter.resources.limits.memory of at least %dMi: raise the memory, or lower adapter.limits.line'.format([has(self.limits) && has(self.limits.line) ? 'is' : 'defaults to', int((has(self.limits) && has(self.limits.line) ? (type(self.limits.line) == int ? double(self.limits.line) : quantity(self.limits.line).asApproximateFloat()) : 67108864.0)), (int((has(self.limits) && has(self.limits.line) ? (type(self.limits.line) == int ? double(self.limits.line) : quantity(self.limits.line).asApproximateFloat()) : 67108864.0)) + 262143) / 262144])",fieldPath=".limits.line"
type Adapter struct {
	// resources are the compute resources of the adapter's container. If unset, the
	// manager's configuration decides. By default the container requests 10m of CPU and
	// 32Mi of memory and has a memory limit of 256Mi. (An autoscaler of CPU or memory
	// needs a request on every container.) If set, none of these defaults apply. The
	// adapter uses half of its memory limit for messages. So the limit must be at least
	// four times limits.body and four times limits.line, also if these are unset.
	// Without a memory limit, it uses 128Mi for messages, or twice the larger of
	// limits.body and limits.line if that is more.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// allowedOrigins are the web origins that may call the server from a
	// browser, such as https://chat.example.com. The adapter refuses all others but
	// those of localhost. The entry * allows every origin. Requests without an Origin
	// header are not affected. A change takes effect in running pods, without a restart.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	AllowedOrigins []Origin `json:"allowedOrigins,omitempty"`

	// allowedHosts are the host names, with or without a port, that clients may send in
	// the Host header besides the names of the Service and the hosts in auth.resources,
	// such as the name of an ingress.
	// The adapter refuses requests for other host names, which protects browsers' users
	// from DNS rebinding. The entry * allows every host. A change takes effect in
	// running pods, without a restart.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	AllowedHosts []Host `json:"allowedHosts,omitempty"`

	// verbosity is how much the adapter logs, from 0 to 5. Defaults to 0. 1 adds
	// sessions that end and failures that repeat; higher levels add nothing yet. A
	// change takes effect in running pods, without a restart.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	Verbosity *int32 `json:"verbosity,omitempty"`

	// legacySSE also offers clients the endpoints of protocol revision 2024-11-05, /sse
	// and /messages, for those that support nothing newer. Defaults to false.
	// +optional
	LegacySSE bool `json:"legacySSE,omitempty"`

	// offerRoots lets a server with sessions ask clients of revision 2026-07-28 for
	// their roots. That revision deprecates roots, so the adapter tells servers that
	// such clients have none, unless this is true. Defaults to false. It takes effect
	// only if session.statelessClients is Translate.
	// +optional
	OfferRoots bool `json:"offerRoots,omitempty"`

	// limits bound the memory, calls and streams that one client or server can take
	// in the adapter. If a field is unset, the manager's configuration decides. The
	// defaults below apply if the configuration sets none.
	// +optional
	Limits *AdapterLimits `json:"limits,omitempty"`
}

// AdapterLimits bound the memory, calls and streams that one client or server can take in the
// adapter.
type AdapterLimits struct {
	// body is the largest request body that the adapter accepts from a client, as a
	// quantity such as 32Mi. It refuses a larger one with status 413. Defaults to 32Mi.
	// If adapter.resources has a memory limit, the limit must be at least four times
	// this. The adapter's default memory limit, 256Mi, allows up to 64Mi.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1024 && self <= 1073741824 : quantity(self).asApproximateFloat() >= 1024.0 && quantity(self).asApproximateFloat() <= 1073741824.0",message="adapter.limits.body must be a number of bytes from 1Ki to 1Gi, such as 512Ki or 32Mi"
	Body *resource.Quantity `json:"body,omitempty"`

	// line is the largest message that the adapter accepts from the server, as a
	// quantity such as 64Mi: one line of a stdio server, one event of an sse server, or
	// one message of a streamable-http server that the adapter translates. A larger one
	// ends the session with an error, and the process with it. Defaults to 64Mi. If
	// adapter.resources has a memory limit, the limit must be at least four times this.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1024 && self <= 1073741824 : quantity(self).asApproximateFloat() >= 1024.0 && quantity(self).asApproximateFloat() <= 1073741824.0",message="adapter.limits.line must be a number of bytes from 1Ki to 1Gi, such as 512Ki or 32Mi"
	Line *resource.Quantity `json:"line,omitempty"`

	// replay is how much of each session's events the adapter keeps, as a quantity
	// such as 1Mi, so that a client that lost its connection can resume. 0 keeps none.
	// Defaults to 1Mi.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1073741824 : quantity(self).asApproximateFloat() >= 0.0 && quantity(self).asApproximateFloat() <= 1073741824.0",message="adapter.limits.replay must be a number of bytes from 0 to 1Gi, such as 512Ki or 32Mi"
	Replay *resource.Quantity `json:"replay,omitempty"`

	// callsPerSession is the number of calls that one session may have in flight. The
	// adapter refuses more with status 503. Defaults to 1024.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16384
	CallsPerSession *int32 `json:"callsPerSession,omitempty"`

	// streamsPerSession is the number of event streams that one session may hold
	// open at a time. Defaults to 16. With one more, the adapter ends the oldest GET stream.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	StreamsPerSession *int32 `json:"streamsPerSession,omitempty"`

	// concurrentStarts is the number of processes of a stdio server that may be
	// starting at a time; further starts wait. Defaults to 4.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	ConcurrentStarts *int32 `json:"concurrentStarts,omitempty"`
}

// Origin is a web origin (scheme, host and, if it is not the scheme's own, port), or *.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=300
// +kubebuilder:validation:XValidation:rule="self == '*' || self.matches('^https?://[^/?#@[:space:]]+$')",message="an origin must look like https://chat.example.com or http://localhost:8080, without a path, or be *"
type Origin string

// Host is a host name or address, with or without a port, or *.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=300
// +kubebuilder:validation:XValidation:rule="self == '*' || !self.matches('[/?#@[:space:]]')",message="a host must look like mcp.example.com or mcp.example.com:8443, without a scheme or path, or be *"
type Host string

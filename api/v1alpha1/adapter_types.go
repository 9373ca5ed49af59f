package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// Adapter configures the sidecar that clients talk to. Its rules refuse what checkMemory of
// internal/sidecar refuses, before a pod does. docs/decisions/2026-11-15-api-validation.md says
// why they are written as they are.
//
// +kubebuilder:validation:XValidation:rule="!has(self.resources) ? self.?limits.?bodyBytes.orValue(33554432) <= 67108864 : !has(self.resources.limits) || !('memory' in self.resources.limits) || (type(self.resources.limits['memory']) == int ? self.resources.limits['memory'] <= 0 || self.resources.limits['memory'] >= 4 * self.?limits.?bodyBytes.orValue(33554432) : sign(quantity(self.resources.limits['memory'])) <= 0 || quantity(self.resources.limits['memory']).asApproximateFloat() >= double(4 * self.?limits.?bodyBytes.orValue(33554432)))",messageExpression="'adapter.limits.bodyBytes %s %d, which needs adapter.resources.limits.memory of at least %dMi: raise the memory, or lower bodyBytes'.format([self.?limits.?bodyBytes.hasValue() ? 'is' : 'defaults to', self.?limits.?bodyBytes.orValue(33554432), (self.?limits.?bodyBytes.orValue(33554432) + 262143) / 262144])",fieldPath=".limits.bodyBytes"
// +kubebuilder:validation:XValidation:rule="!has(self.resources) ? self.?limits.?lineBytes.orValue(67108864) <= 67108864 : !has(self.resources.limits) || !('memory' in self.resources.limits) || (type(self.resources.limits['memory']) == int ? self.resources.limits['memory'] <= 0 || self.resources.limits['memory'] >= 4 * self.?limits.?lineBytes.orValue(67108864) : sign(quantity(self.resources.limits['memory'])) <= 0 || quantity(self.resources.limits['memory']).asApproximateFloat() >= double(4 * self.?limits.?lineBytes.orValue(67108864)))",messageExpression="'adapter.limits.lineBytes %s %d, which needs adapter.resources.limits.memory of at least %dMi: raise the memory, or lower lineBytes'.format([self.?limits.?lineBytes.hasValue() ? 'is' : 'defaults to', self.?limits.?lineBytes.orValue(67108864), (self.?limits.?lineBytes.orValue(67108864) + 262143) / 262144])",fieldPath=".limits.lineBytes"
type Adapter struct {
	// resources are the compute resources of the adapter's container. When left
	// out, it requests 10m of CPU and 32Mi of memory, because an autoscaler that
	// looks at resources needs a request on every container, and may use 256Mi of
	// memory. What is given replaces all of that. Half of the memory limit is for
	// messages, so the limit must be at least four times limits.bodyBytes and four
	// times limits.lineBytes. Without a memory limit, 128Mi are for messages, or
	// twice the larger of these two.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// allowedOrigins are the web origins that may call the server from a
	// browser, such as https://chat.example.com. The entry * allows every origin.
	// Requests without an Origin header are not affected. A change takes effect
	// in running pods, without a restart.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	AllowedOrigins []Origin `json:"allowedOrigins,omitempty"`

	// allowedHosts are host names, with or without a port, under which clients
	// may reach the server besides the names of its Service, such as the name of
	// an ingress. The entry * allows every host. A change takes effect in running
	// pods, without a restart.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	AllowedHosts []Host `json:"allowedHosts,omitempty"`

	// verbosity is how much the adapter logs, from 0 to 5; 0 when left out. 1 adds
	// sessions that end, and failures that repeat themselves. A change takes effect
	// in running pods, without a restart.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	Verbosity *int32 `json:"verbosity,omitempty"`

	// legacySSE also offers the endpoints of protocol revision 2024-11-05, /sse
	// and /messages, for clients that know nothing newer.
	// +optional
	LegacySSE bool `json:"legacySSE,omitempty"`

	// upgrade says when the adapter of a new operator version reaches running
	// pods. OnChange: with the next change that restarts them anyway. Rolling: by
	// a rolling update, as soon as it is this server's turn. When left out, the
	// operator's configuration decides, which is OnChange unless it says otherwise.
	// +optional
	Upgrade AdapterUpgrade `json:"upgrade,omitempty"`

	// limits bound what a client or a server can make the adapter hold.
	// +optional
	Limits *AdapterLimits `json:"limits,omitempty"`
}

// AdapterUpgrade says when the adapter of a new operator version reaches running pods.
//
// +kubebuilder:validation:Enum=OnChange;Rolling
type AdapterUpgrade string

const (
	// AdapterUpgradeOnChange waits for a change that restarts the pods anyway.
	AdapterUpgradeOnChange AdapterUpgrade = "OnChange"
	// AdapterUpgradeRolling restarts the pods without such a change, by a rolling update.
	AdapterUpgradeRolling AdapterUpgrade = "Rolling"
)

// AdapterLimits bound what a client or a server can make the adapter hold.
type AdapterLimits struct {
	// bodyBytes is the largest request body taken from a client; a larger one is
	// answered 413. It is 33554432 (32 MiB) when left out. More than 67108864
	// (64 MiB) needs a memory limit of four times as much in adapter.resources.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=1073741824
	BodyBytes *int64 `json:"bodyBytes,omitempty"`

	// lineBytes is the largest message taken from a stdio server; a larger one
	// ends that process with an error for its session. It is also the largest
	// event of an sse server, and the largest message of a streamable-http server
	// that the adapter translates. It is 67108864 (64 MiB) when left out. More
	// needs a memory limit of four times as much in adapter.resources.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=1073741824
	LineBytes *int64 `json:"lineBytes,omitempty"`

	// replayBytes is how much of a session's events is kept, so that a client
	// that lost its connection can resume. 0 keeps none. It is 1048576 (1 MiB)
	// when left out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1073741824
	ReplayBytes *int64 `json:"replayBytes,omitempty"`

	// streamsPerSession is the number of event streams that one session may hold
	// open at a time. It is 16 when left out.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	StreamsPerSession *int32 `json:"streamsPerSession,omitempty"`

	// concurrentStarts is the number of processes of a stdio server that may be
	// starting at a time; further starts wait. It is 4 when left out.
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

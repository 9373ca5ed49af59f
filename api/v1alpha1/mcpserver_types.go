package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MCPServer runs an MCP server from a container image and offers it to every
// MCP client in the cluster at one URL, whatever protocol revision the client
// speaks.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=mcpsrv,categories=slipway
// +kubebuilder:selectablefield:JSONPath=`.spec.image`
// +kubebuilder:selectablefield:JSONPath=`.spec.transport.type`
// +kubebuilder:selectablefield:JSONPath=`.status.template.outdated`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether clients can use the server now."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[0].reason`,description="Why the server is ready or not, or that it was stopped."
// +kubebuilder:printcolumn:name="Tools",type=integer,JSONPath=`.status.catalog.counts.tools`,description="How many tools the server offers."
// +kubebuilder:printcolumn:name="Sessions",type=integer,JSONPath=`.status.sessions`,description="How many sessions were open when last counted."
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`,description="How many pods there are."
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.address.url`,description="Where clients connect."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since the object was created."
// +kubebuilder:printcolumn:name="Draining",type=integer,priority=1,JSONPath=`.status.draining.replicas`,description="How many pods were deleted and wait for their sessions to end."
// +kubebuilder:printcolumn:name="Draining Sessions",type=integer,priority=1,JSONPath=`.status.draining.sessions`,description="How many of the sessions are in these pods."
// +kubebuilder:printcolumn:name="Transport",type=string,priority=1,JSONPath=`.spec.transport.type`,description="What the server itself speaks."
// +kubebuilder:printcolumn:name="Protocol",type=string,priority=1,JSONPath=`.status.serverInfo.protocolVersion`,description="The newest protocol revision that the server itself speaks."
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.spec.image`,description="The server's image."
// +kubebuilder:printcolumn:name="Adapter",type=string,priority=1,JSONPath=`.status.template.adapterVersion`,description="The version of the adapter in the pods."
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must be no longer than 63 characters, because the Service that clients connect to has the same name"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) > 63 || self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must start with a letter and hold only lower-case letters, digits and '-', because the Service that clients connect to has the same name"
type MCPServer struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard metadata of a Kubernetes object. The name is also
	// the name of the Service, so it must be a DNS label of at most 63 characters.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says how the server is run and offered.
	// +required
	Spec MCPServerSpec `json:"spec,omitzero"`

	// status is the observed state of the server. Only the manager writes it.
	// +optional
	Status MCPServerStatus `json:"status,omitzero"`
}

// MCPServerList is a list of MCPServers.
//
// +kubebuilder:object:root=true
type MCPServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []MCPServer `json:"items"`
}

// MCPServerSpec says how an MCP server is run and offered.
//
// +kubebuilder:validation:XValidation:rule="self.transport.type == 'stdio' || !has(self.session) || !has(self.session.isolation)",message="session.isolation is for stdio servers only: a server that speaks HTTP keeps its own sessions",fieldPath=".session.isolation",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.transport.type == 'stdio' || !has(self.session) || !has(self.session.warm)",message="session.warm is for stdio servers only: a server that speaks HTTP is one process for all sessions",fieldPath=".session.warm",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.volumeMounts) || self.volumeMounts.all(m, m.name.startsWith('slipway-') || has(self.volumes) && m.name in self.volumes.transformMapEntry(i, v, {v.name: true}))",messageExpression="'volumeMounts names volume %s, which is not in volumes: add it there, or correct the name'.format([self.volumeMounts.filter(m, !(m.name.startsWith('slipway-') || has(self.volumes) && m.name in self.volumes.transformMapEntry(i, v, {v.name: true})))[0].name])",fieldPath=".volumeMounts"
// +kubebuilder:validation:XValidation:rule="!has(self.auth) || self.auth.mode != 'Server' || self.transport.type != 'stdio'",message="auth.mode Server is for transports streamable-http and sse only: a stdio server sees no tokens",fieldPath=".auth.mode",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.auth) || self.auth.mode != 'Required' || has(self.access) && has(self.access.rules)",message="auth needs access.rules: add a rule that authorizes callers",fieldPath=".access",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="!has(self.auth) || self.auth.mode != 'Server' || !has(self.access) || !has(self.access.rules) && !has(self.access.blocked)",message="access.rules and access.blocked must not be set with auth.mode Server: the adapter does not know the caller",fieldPath=".access",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="has(self.auth) || !has(self.access) || !has(self.access.blocked)",message="access.blocked needs auth: without it the adapter does not know the caller",fieldPath=".access.blocked",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.access) || !has(self.access.rules) || self.access.rules.all(r, r.subjects.all(s, (s.kind == 'Group' && s.name == 'system:unauthenticated') != has(self.auth)))",message="without auth, the subjects of access.rules can only be the Group system:unauthenticated; with auth, they cannot: it has no callers then",fieldPath=".access.rules"
// +kubebuilder:validation:XValidation:rule="!has(self.access) || !has(self.access.rules) || has(self.auth) && has(self.auth.issuers) || !self.access.rules.exists(r, has(r.scopes))",message="scopes in access.rules need auth.issuers: other tokens have no scopes",fieldPath=".access.rules"
type MCPServerSpec struct {
	// image is the container image that holds the MCP server. It can have a registry
	// port, a tag and a digest. If command is unset, the pods stay at the digest that
	// the tag had when they were rendered.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:space:]]')",message="image must not contain white space"
	Image string `json:"image,omitempty"`

	// imagePullPolicy says when the image is pulled: Always, IfNotPresent or
	// Never. If unset, Kubernetes decides: Always for the tag latest and for an image
	// with neither tag nor digest, IfNotPresent otherwise.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// imagePullSecrets names Secrets of this namespace with the credentials of a
	// private registry. They are used to pull the image and to read its
	// configuration.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// command is the program to run and its first arguments. It is not run in a shell.
	// As in a pod, an image's own arguments are not used together with a command. If
	// unset, the image's entrypoint is used. For a stdio server, the manager reads it
	// from the registry, so you must set command if the manager cannot reach the registry.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=32768
	Command []string `json:"command,omitempty"`

	// args are the arguments of the command, or of the image's entrypoint. If command
	// and args are both unset, the image's own arguments are used.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=32768
	Args []string `json:"args,omitempty"`

	// workingDir is the directory the server starts in. Defaults to the image's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	WorkingDir string `json:"workingDir,omitempty"`

	// env is a list of environment variables for the server. Names that start
	// with SLIPWAY_ are reserved.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:XValidation:rule="!self.exists(v, v.name.startsWith('SLIPWAY_'))",message="env must not set variables whose name starts with SLIPWAY_: they are reserved"
	Env []corev1.EnvVar `json:"env,omitempty"`

	// envFrom takes environment variables for the server from whole Secrets and
	// ConfigMaps.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`

	// resources are the compute resources of the server's container. All
	// sessions of a pod share them. If you set nothing here, the manager's
	// configuration decides, and its default is no requests and no limits. If you set
	// any part, no default applies to the rest.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// volumes are the volumes that volumeMounts can name. Names that start with
	// slipway- are reserved. For the storage of a cloud, use persistentVolumeClaim or csi.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(v, v.name.startsWith('slipway-'))",message="volumes must not have names that start with slipway-: they are reserved"
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// volumeMounts says where the volumes appear in the server's container.
	// Volumes whose names start with slipway- cannot be mounted, and paths that
	// start with /slipway are reserved.
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(m, m.name.startsWith('slipway-'))",message="volumeMounts must not name volumes that start with slipway-: they are reserved"
	// +kubebuilder:validation:XValidation:rule="!self.exists(m, m.mountPath.startsWith('/slipway'))",message="volumeMounts must not have paths that start with /slipway: they are reserved"
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`

	// securityContext is the security context of the server's container. The manager
	// merges your fields over its defaults, and yours win. The defaults are non-root, no
	// capabilities, no privilege escalation and the runtime's seccomp profile. If no
	// user is set here or in podTemplate, the server runs as the image's user if that is
	// a number other than 0, and as user 1000 otherwise.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`

	// serviceAccountName is the ServiceAccount the pods run as. If unset, the manager
	// creates one without any permissions for this server.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// replicas is the number of pods. Defaults to 1. An autoscaler targets the
	// MCPServer itself, through its scale subresource. Zero stops the pods and
	// keeps everything else. A session lives in one pod and ends with it. Any pod takes
	// requests of the session and passes them on.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`

	// transport says how the server in the image speaks MCP: on standard input
	// and output (type stdio), or over HTTP on a port of its own (streamable-http,
	// with the port in streamableHTTP; sse, with the port in sse). Only the block of
	// the chosen type may be set. Clients need not know: they always find Streamable
	// HTTP at the server's URL.
	// +required
	Transport Transport `json:"transport,omitzero"`

	// session says how the adapter serves client sessions: by which process, how many,
	// and for how long. Durations are written like 90s, 30m or 1h30m.
	// +optional
	// +kubebuilder:default={}
	Session Session `json:"session,omitzero"`

	// rollout says how and when the server's pods are replaced.
	// +optional
	Rollout Rollout `json:"rollout,omitzero"`

	// verification sets how often the manager checks that the server still works, and
	// how long a check may take. Durations are written like 500ms, 10s or 1m.
	// +optional
	Verification Verification `json:"verification,omitzero"`

	// adapter configures the sidecar that clients talk to.
	// +optional
	Adapter Adapter `json:"adapter,omitzero"`

	// service configures the Service that clients connect to.
	// +optional
	Service Service `json:"service,omitzero"`

	// auth says which tokens callers need. If unset, anyone who can reach the Service can call
	// every tool. A change takes effect in running pods, without a restart.
	// +optional
	Auth *Auth `json:"auth,omitempty"`

	// access authorizes callers: its rules list the tools, prompts and resources that each caller
	// can use. A change takes effect in running pods, without a restart.
	// +optional
	Access *Access `json:"access,omitempty"`

	// audit says what the adapters record. A change takes effect in running pods, without a
	// restart.
	// +optional
	Audit *Audit `json:"audit,omitempty"`

	// podTemplate holds what else can be set on the server's pods.
	// +optional
	PodTemplate *PodTemplate `json:"podTemplate,omitempty"`

	// suspend stops all pods and keeps all other objects and the value of replicas, so
	// that the server comes back as it was. While suspend is true, an autoscaler cannot
	// start pods. Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// Session bounds what one client session may use, and for how long.
//
// +kubebuilder:validation:XValidation:rule="!has(self.isolation) || self.isolation != 'Shared' || !has(self.warm)",message="session.warm must not be set with isolation Shared: there all sessions use one process",fieldPath=".warm",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.isolation) || self.isolation != 'Shared' || !has(self.statelessClients)",message="session.statelessClients must not be set with isolation Shared: there all clients use one process, whatever revision they speak",fieldPath=".statelessClients",reason=FieldValueForbidden
type Session struct {
	// isolation says which process serves a session of a stdio server.
	// PerSession (default): each session has a process of its own, so sessions share no
	// memory. This is not a security boundary: the processes of a pod run as one user,
	// and a hostile one can reach the others. Shared: one process serves all sessions.
	// It suits servers that keep no state and are slow to start. The adapter refuses
	// requests that such a server sends to its clients, such as sampling.
	// +optional
	Isolation SessionIsolation `json:"isolation,omitempty"`

	// statelessClients says what clients of revision 2026-07-28, which has no
	// sessions, get from a server that has sessions only. Native (default): the adapter
	// refuses their requests with an error. A client that also supports an older
	// revision then opens a session, and has a process of its own. A client that
	// supports only 2026-07-28 cannot connect. Translate: the adapter serves them without
	// a session. All clients with the same bearer token, or with the same address and no
	// token, then share one process and what it keeps in memory. Behind an ingress or
	// NAT, all clients have the same address.
	// +optional
	StatelessClients StatelessClients `json:"statelessClients,omitempty"`

	// warm is the number of processes of a stdio server that the adapter starts in advance,
	// so that a new session need not wait. Defaults to 1. It must be left out with isolation
	// Shared, and for other types of servers.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Warm *int32 `json:"warm,omitempty"`

	// maxPerPod is the number of sessions that one pod serves at a time. Defaults to 20.
	// When all are open, the adapter ends an idle one for a new session. If none becomes
	// free within 10 seconds, it refuses the new one with status 503 and a Retry-After
	// header. The manager's configuration can set an upper bound.
	// +optional
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxPerPod *int32 `json:"maxPerPod,omitempty"`

	// startTimeout is how long a process of the server may take to start and
	// answer its first request. Defaults to 60s. Until then the status says that the
	// server starts, and not that it is broken. After that, the adapter ends the process
	// and starts another. Raise it for servers that install packages or load a model
	// when they start.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|m|h)|[0-9]{1,5}([.][0-9]{1,3})?s){1,4}$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="session.startTimeout must be a duration from 1s to 1h, such as 90s or 5m"
	StartTimeout *metav1.Duration `json:"startTimeout,omitempty"`

	// idleTimeout ends a session in which nothing happened for this long. Defaults to
	// 30m.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|m|h)|[0-9]{1,5}([.][0-9]{1,3})?s){1,4}$') && duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="session.idleTimeout must be a duration from 1s to 8760h, such as 90s, 30m or 1h30m"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`

	// maxLifetime ends a session this long after it began, idle or not. Defaults to 24h.
	// +optional
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|m|h)|[0-9]{1,5}([.][0-9]{1,3})?s){1,4}$') && duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="session.maxLifetime must be a duration from 1s to 8760h, such as 90s, 30m or 24h"
	MaxLifetime *metav1.Duration `json:"maxLifetime,omitempty"`

	// callTimeout is the longest that one call may take, whether it reports
	// progress or not. Defaults to 10m. The client then gets an error.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|m|h)|[0-9]{1,5}([.][0-9]{1,3})?s){1,4}$') && duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="session.callTimeout must be a duration from 1s to 8760h, such as 90s or 10m"
	CallTimeout *metav1.Duration `json:"callTimeout,omitempty"`

	// answerTimeout is how long a call waits for a client of revision 2026-07-28 to
	// answer a request of the server, such as an elicitation. Defaults to 10m. The
	// adapter then tells the server that the user canceled. It takes effect only if
	// statelessClients is Translate.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|m|h)|[0-9]{1,5}([.][0-9]{1,3})?s){1,4}$') && duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="session.answerTimeout must be a duration from 1s to 8760h, such as 90s or 10m"
	AnswerTimeout *metav1.Duration `json:"answerTimeout,omitempty"`

	// drainTimeout is how long the sessions of a pod that is going away may live on.
	// Defaults to 9m, and to 60s if the server speaks HTTP. Meanwhile other pods pass
	// requests on to it. Then its sessions end, and calls in flight with an error. A
	// pod without sessions does not wait. The pod's grace period is 20 seconds longer:
	// the cluster autoscaler waits no longer than 10 minutes for it.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|m|h)|[0-9]{1,5}([.][0-9]{1,3})?s){1,4}$') && duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="session.drainTimeout must be a duration from 0s to 24h, such as 60s or 5m"
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`

	// keyRotation is the time between two rotations of the key that seals session ids.
	// No session ends, and no pod is replaced. By default, the key is rotated only when
	// you ask for it, with the annotation mcp.slipway.dev/rotate-key.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|m|h)|[0-9]{1,5}([.][0-9]{1,3})?s){1,4}$') && duration(self) >= duration('1h') && duration(self) <= duration('8760h')",message="session.keyRotation must be a duration from 1h to 8760h, such as 24h or 720h"
	KeyRotation *metav1.Duration `json:"keyRotation,omitempty"`
}

// SessionIsolation says which process serves a session of a stdio server.
//
// +kubebuilder:validation:Enum=PerSession;Shared
type SessionIsolation string

const (
	// SessionIsolationPerSession gives each session a process of its own.
	SessionIsolationPerSession SessionIsolation = "PerSession"
	// SessionIsolationShared serves all sessions of a pod from one process.
	SessionIsolationShared SessionIsolation = "Shared"
)

// StatelessClients says what clients without sessions get from a server that has sessions
// only.
//
// +kubebuilder:validation:Enum=Native;Translate
type StatelessClients string

const (
	// StatelessClientsNative refuses them, so that those that can open a session.
	StatelessClientsNative StatelessClients = "Native"
	// StatelessClientsTranslate serves them, without isolation from clients with the same
	// token or address.
	StatelessClientsTranslate StatelessClients = "Translate"
)

// Verification sets how often the manager checks that the server still works. The result is in the
// status. A failed check restarts nothing, and does not take the pod out of the Service: the probes
// of the kubelet do that, and Slipway sets them.
type Verification struct {
	// interval is the time between two checks of each pod. Defaults to 10s. While nothing
	// changes, the time can grow to 30s, but with several pods it stays at most 10s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|m|h)|[0-9]{1,5}([.][0-9]{1,3})?s){1,4}$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="verification.interval must be a duration from 1s to 1h, such as 10s or 1m"
	Interval *metav1.Duration `json:"interval,omitempty"`

	// timeout is how long one check may take before it counts as failed. Defaults to
	// 5s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|m|h)|[0-9]{1,5}([.][0-9]{1,3})?s){1,4}$') && duration(self) >= duration('100ms') && duration(self) <= duration('1m')",message="verification.timeout must be a duration from 100ms to 1m, such as 500ms or 5s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

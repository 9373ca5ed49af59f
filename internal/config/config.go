// Package config is the manager's one configuration file: its fields, their
// defaults, how it is read and what it must satisfy.
package config

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is the kind of the file.
const Kind = "ManagerConfiguration"

// GroupVersion is the apiVersion of the file.
var GroupVersion = schema.GroupVersion{Group: "config.slipway.dev", Version: "v1alpha1"}

// Off as a bind address turns that server off.
const Off = "0"

// Manager is what the file says, on top of the defaults.
type Manager struct {
	// apiVersion must be config.slipway.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`

	// kind must be ManagerConfiguration.
	Kind string `json:"kind"`

	// leaderElection ensures that only one manager acts at a time.
	LeaderElection LeaderElection `json:"leaderElection"`

	// metrics configures the endpoint that Prometheus scrapes.
	Metrics Metrics `json:"metrics"`

	// health configures the endpoint that the kubelet probes.
	Health Health `json:"health"`

	// logging configures the log on standard error.
	Logging Logging `json:"logging"`

	// adapter configures the sidecar container in the pods of MCPServers.
	Adapter Adapter `json:"adapter"`

	// concurrency limits how much work the manager does in parallel.
	Concurrency Concurrency `json:"concurrency"`

	// rollouts limits the restarts that the manager starts by itself.
	Rollouts Rollouts `json:"rollouts"`

	// registry configures which image registries the manager queries.
	Registry Registry `json:"registry"`

	// auth configures which MCPServers must authenticate their callers, and which token issuers they may use.
	Auth Auth `json:"auth"`

	// pods configures the pods of MCPServers.
	Pods Pods `json:"pods"`

	// servers sets defaults and upper bounds for MCPServers.
	Servers Servers `json:"servers"`

	// clusterDomain is the domain at the end of the DNS names of Services. Adapters accept these names in the
	// Host header. A change takes effect in running pods.
	ClusterDomain string `json:"clusterDomain"`

	// namespaces limits the manager to the MCPServers in these namespaces. An empty list means all namespaces.
	Namespaces []string `json:"namespaces"`
}

// LeaderElection makes sure that one manager at a time acts.
type LeaderElection struct {
	// enabled can be false only if a second manager can never run, not even during an update.
	Enabled bool `json:"enabled"`

	// namespace holds the Lease. It defaults to the namespace of the manager's pod. Outside a cluster you must set
	// it.
	Namespace string `json:"namespace"`

	// leaseDuration is how long a standby manager waits before it replaces a leader that disappeared. It must be
	// longer than renewDeadline.
	LeaseDuration Duration `json:"leaseDuration"`

	// renewDeadline is how long a leader that cannot renew its Lease keeps trying before it exits. It must be longer
	// than 1.2 times retryPeriod.
	RenewDeadline Duration `json:"renewDeadline"`

	// retryPeriod is the time between two attempts to get or renew the Lease.
	RetryPeriod Duration `json:"retryPeriod"`
}

// Metrics is the endpoint that Prometheus scrapes.
type Metrics struct {
	// bindAddress is the host:port of the metrics endpoint. "0" disables it.
	BindAddress string `json:"bindAddress"`

	// protocol is HTTPS or HTTP. HTTP cannot be combined with authentication Kubernetes.
	Protocol Protocol `json:"protocol"`

	// authentication is Kubernetes or None. With Kubernetes, the manager asks the API server who the caller is and
	// whether the caller may get /metrics.
	Authentication Authentication `json:"authentication"`

	// certificateDirectory contains tls.crt and tls.key. The manager reads them again when they change. If unset,
	// the manager creates a self-signed certificate when it starts.
	CertificateDirectory string `json:"certificateDirectory"`
}

// Protocol is what an endpoint speaks.
type Protocol string

const (
	// ProtocolHTTPS encrypts.
	ProtocolHTTPS Protocol = "HTTPS"
	// ProtocolHTTP does not.
	ProtocolHTTP Protocol = "HTTP"
)

// Authentication is how callers of an endpoint are told apart.
type Authentication string

const (
	// AuthenticationKubernetes asks the API server, by TokenReview and
	// SubjectAccessReview.
	AuthenticationKubernetes Authentication = "Kubernetes"
	// AuthenticationNone accepts every client.
	AuthenticationNone Authentication = "None"
)

// Health is the endpoint that the kubelet probes.
type Health struct {
	// bindAddress is the host:port that serves /healthz and /readyz. "0" disables both.
	BindAddress string `json:"bindAddress"`
}

// Logging says what is written to standard error, and how.
type Logging struct {
	// format is JSON (one object per line) or Text (for people).
	Format LogFormat `json:"format"`

	// level is the verbosity, from 0 to 5. 0 logs what a cluster administrator should see. 1 adds every change in what a
	// pod answers. 5 logs every detail.
	Level int `json:"level"`
}

// LogFormat is how a line of the log looks.
type LogFormat string

const (
	// LogFormatJSON is one JSON object a line.
	LogFormatJSON LogFormat = "JSON"
	// LogFormatText is for people.
	LogFormatText LogFormat = "Text"
)

// Adapter is the sidecar that the pods of MCPServers get.
type Adapter struct {
	// image is the adapter's image, the container mcp-adapter in the pods of MCPServers. If unset, the environment
	// variable SLIPWAY_ADAPTER_IMAGE decides; install.yaml sets it to the image that was built together with the
	// manager.
	Image string `json:"image"`

	// imagePullPolicy is the pull policy of that image: Always, IfNotPresent or Never.
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy"`
}

// Concurrency is how much the manager does at a time.
type Concurrency struct {
	// reconciliations is how many MCPServers the manager reconciles in parallel, from 1 to 1000. Half of these
	// workers, and at least one, create new servers; the others stay free for servers that already have pods. Raise
	// it to speed up bursts of new servers if the API server can take more requests.
	Reconciliations int `json:"reconciliations"`

	// probes is how many pods the manager probes in parallel, from 1 to 1000. Pods that do not answer share half of
	// these workers. Raise it if you have thousands of servers that take longer than 30 ms to answer.
	Probes int `json:"probes"`
}

// Rollouts bounds what the manager restarts by itself: pods that get a newer adapter, and
// pods that refer to a Secret or ConfigMap which has changed. A change of an MCPServer
// never waits.
type Rollouts struct {
	// maxConcurrent is how many MCPServers the manager rolls out at the same time without a change of their spec. 0
	// means the default.
	MaxConcurrent int `json:"maxConcurrent"`

	// onOperatorUpgrade applies to MCPServers that leave out spec.rollout.onOperatorUpgrade. Restart replaces pods
	// whose template a new manager version or configuration would change. Ignore leaves running pods unchanged.
	OnOperatorUpgrade RolloutPolicy `json:"onOperatorUpgrade"`
}

// RolloutPolicy says whether the manager replaces pods by itself.
type RolloutPolicy string

const (
	// RolloutRestart replaces them.
	RolloutRestart RolloutPolicy = "Restart"
	// RolloutIgnore leaves them as they are.
	RolloutIgnore RolloutPolicy = "Ignore"
)

// defaultMaxConcurrent is the controller's own default, for people to read in the file.
const defaultMaxConcurrent = 10

// Registry says which registries are asked what images run.
type Registry struct {
	// mode is Enabled, or Disabled for clusters that cannot reach a registry. The manager reads the command and the
	// user of an image from its registry.
	Mode RegistryMode `json:"mode"`

	// allowedHosts are the only registries that the manager queries, such as docker.io, registry.example:5000 or
	// *.registry.example. An empty list means all.
	AllowedHosts []string `json:"allowedHosts"`

	// certificateAuthorityFile contains PEM certificates that the manager trusts in addition to the public ones. The
	// manager reads it when it starts.
	CertificateAuthorityFile string `json:"certificateAuthorityFile"`
}

// RegistryMode says whether registries are asked.
type RegistryMode string

const (
	// RegistryEnabled asks registries.
	RegistryEnabled RegistryMode = "Enabled"
	// RegistryDisabled asks none, for clusters without a way to them.
	RegistryDisabled RegistryMode = "Disabled"
)

// Pods says how the pods of MCPServers are made.
type Pods struct {
	// runAsUser is Fixed or Assigned. With Fixed, the manager sets a user for each container that needs one.
	// With Assigned, an admission plugin of the cluster chooses the user, as on OpenShift.
	RunAsUser RunAsUser `json:"runAsUser"`
}

// RunAsUser says which part of the cluster chooses the user of a container whose spec
// names none.
type RunAsUser string

const (
	// RunAsUserFixed has the manager choose.
	RunAsUserFixed RunAsUser = "Fixed"
	// RunAsUserAssigned leaves it to an admission plugin of the cluster.
	RunAsUserAssigned RunAsUser = "Assigned"
)

// AdapterImageVariable is the environment variable with the adapter's image. It applies if adapter.image is unset.
const AdapterImageVariable = "SLIPWAY_ADAPTER_IMAGE"

// MemoryLimitVariable is the environment variable with the memory limit of the manager's container, in bytes.
const MemoryLimitVariable = "SLIPWAY_MEMORY_LIMIT"

// Default is the configuration of an empty file, and of no file.
func Default() Manager {
	return Manager{
		APIVersion: GroupVersion.String(),
		Kind:       Kind,
		LeaderElection: LeaderElection{
			Enabled:       true,
			LeaseDuration: Duration(15 * time.Second),
			RenewDeadline: Duration(10 * time.Second),
			RetryPeriod:   Duration(2 * time.Second),
		},
		Metrics: Metrics{
			BindAddress:    ":8443",
			Protocol:       ProtocolHTTPS,
			Authentication: AuthenticationKubernetes,
		},
		Health:        Health{BindAddress: ":8081"},
		Logging:       Logging{Format: LogFormatJSON},
		Concurrency:   Concurrency{Reconciliations: 12, Probes: 16},
		Adapter:       Adapter{ImagePullPolicy: corev1.PullIfNotPresent},
		Rollouts:      Rollouts{MaxConcurrent: defaultMaxConcurrent, OnOperatorUpgrade: RolloutIgnore},
		Registry:      Registry{Mode: RegistryEnabled},
		Auth:          Auth{Require: RequireNone},
		Pods:          Pods{RunAsUser: RunAsUserFixed},
		ClusterDomain: "cluster.local",
	}
}

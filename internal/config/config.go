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
	// apiVersion is config.slipway.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`

	// kind is ManagerConfiguration.
	Kind string `json:"kind"`

	// leaderElection makes sure that one manager at a time acts.
	LeaderElection LeaderElection `json:"leaderElection"`

	// metrics is the endpoint that Prometheus scrapes.
	Metrics Metrics `json:"metrics"`

	// health is the endpoint that the kubelet probes.
	Health Health `json:"health"`

	// logging says what is written to standard error, and how.
	Logging Logging `json:"logging"`

	// adapter is what the pods of MCPServers get.
	Adapter Adapter `json:"adapter"`

	// concurrency is how much the manager does at a time.
	Concurrency Concurrency `json:"concurrency"`

	// rollouts bounds what the manager restarts by itself.
	Rollouts Rollouts `json:"rollouts"`

	// registry says which registries are asked what images run.
	Registry Registry `json:"registry"`

	// auth says which MCPServers must authenticate callers, and by whose tokens they may.
	Auth Auth `json:"auth"`

	// pods says how the pods of MCPServers are made.
	Pods Pods `json:"pods"`

	// servers are the defaults and bounds of MCPServers.
	Servers Servers `json:"servers"`

	// clusterDomain is what the names of Services end with.
	ClusterDomain string `json:"clusterDomain"`

	// namespaces are the only ones whose MCPServers are looked at. An empty list
	// means all.
	Namespaces []string `json:"namespaces"`
}

// LeaderElection makes sure that one manager at a time acts.
type LeaderElection struct {
	// enabled can be false only where a second manager can never run.
	Enabled bool `json:"enabled"`

	// namespace holds the Lease. When left out, it is the namespace of the
	// manager's own pod; outside a cluster it must be set.
	Namespace string `json:"namespace"`

	// leaseDuration is how long the others wait after the last sign of life of a
	// leader that did not say goodbye.
	LeaseDuration Duration `json:"leaseDuration"`

	// renewDeadline is how long a leader that cannot renew its lease keeps
	// trying before it stops itself.
	RenewDeadline Duration `json:"renewDeadline"`

	// retryPeriod is the time between two attempts to get or renew the lease.
	RetryPeriod Duration `json:"retryPeriod"`
}

// Metrics is the endpoint that Prometheus scrapes.
type Metrics struct {
	// bindAddress is host:port; "0" turns the endpoint off.
	BindAddress string `json:"bindAddress"`

	// protocol is HTTPS or HTTP.
	Protocol Protocol `json:"protocol"`

	// authentication is Kubernetes, which asks the API server who the caller is
	// and whether it may get /metrics, or None.
	Authentication Authentication `json:"authentication"`

	// certificateDirectory holds tls.crt and tls.key, which are read again when
	// they change. When left out, a self-signed certificate is made at start.
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
	// AuthenticationNone lets everybody in.
	AuthenticationNone Authentication = "None"
)

// Health is the endpoint that the kubelet probes.
type Health struct {
	// bindAddress is host:port; "0" turns the endpoint off.
	BindAddress string `json:"bindAddress"`
}

// Logging says what is written to standard error, and how.
type Logging struct {
	// format is JSON, one object a line, or Text, for people.
	Format LogFormat `json:"format"`

	// level is the verbosity: 0 for what an operator of a cluster should see, 1
	// for every change of state, up to 5 for every detail.
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
	// image is the adapter's image. When left out, it is the one in the environment
	// variable SLIPWAY_ADAPTER_IMAGE, which the installation sets to the image that
	// was built with the manager's.
	Image string `json:"image"`

	// imagePullPolicy is Always, IfNotPresent or Never.
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy"`
}

// Concurrency is how much the manager does at a time.
type Concurrency struct {
	// reconciliations is how many MCPServers are reconciled at a time. Each of them waits
	// for one request to the API server at most. Half of them, and at least one, create
	// servers.
	Reconciliations int `json:"reconciliations"`

	// probes is how many pods are asked at a time. Pods that do not answer share half of
	// them, so that the others do not wait.
	Probes int `json:"probes"`
}

// Rollouts bounds what the manager restarts by itself: pods that get a newer adapter, and
// pods that refer to a Secret or ConfigMap which has changed. A change of an MCPServer
// never waits.
type Rollouts struct {
	// maxConcurrent is how many MCPServers are rolled out at a time; 0 is the default.
	MaxConcurrent int `json:"maxConcurrent"`

	// onOperatorUpgrade is rollout.onOperatorUpgrade of MCPServers that leave it out:
	// Restart, or Ignore, which leaves running pods as they are.
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
	// mode is Enabled or Disabled, which asks none.
	Mode RegistryMode `json:"mode"`

	// allowedHosts are the only registries that are asked, such as docker.io,
	// registry.example:5000 or *.registry.example. An empty list means all.
	AllowedHosts []string `json:"allowedHosts"`

	// certificateAuthorityFile has certificates, as PEM, that are trusted besides the
	// public ones. It is read at start.
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
	// runAsUser is Fixed, which names a user for each container that needs one, or
	// Assigned, which leaves that to the cluster, as OpenShift demands.
	RunAsUser RunAsUser `json:"runAsUser"`
}

// RunAsUser says which part of the cluster chooses the user of a container whose spec
// names none.
type RunAsUser string

const (
	// RunAsUserFixed has the operator choose.
	RunAsUserFixed RunAsUser = "Fixed"
	// RunAsUserAssigned leaves it to an admission plugin of the cluster.
	RunAsUserAssigned RunAsUser = "Assigned"
)

// AdapterImageVariable names the environment variable that holds the adapter's image.
const AdapterImageVariable = "SLIPWAY_ADAPTER_IMAGE"

// MemoryLimitVariable names the environment variable that holds the memory limit of the
// manager's container, in bytes.
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

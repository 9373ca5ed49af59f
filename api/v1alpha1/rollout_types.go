package v1alpha1

// Rollout says how and when the server's pods are replaced. A change of a field here
// replaces no pod by itself.
type Rollout struct {
	// strategy says how pods are replaced. RollingUpdate (default): an old pod goes
	// only after its replacement is ready. Recreate: all old pods go before new ones
	// start, so the server is down in between. Choose Recreate if two pods cannot run
	// side by side, for instance because both need a ReadWriteOnce volume or the only
	// GPU.
	// +optional
	Strategy RolloutStrategy `json:"strategy,omitempty"`

	// onReferenceChange says what happens when a Secret or ConfigMap that the
	// spec refers to changes. Restart (default): the manager replaces the pods, so
	// that they see the change. Ignore: running pods stay as they are, and pods that
	// start later see the change.
	// +optional
	OnReferenceChange RolloutPolicy `json:"onReferenceChange,omitempty"`

	// onOperatorUpgrade says what happens when the manager would render the pods
	// differently after an upgrade or a change of its configuration, for instance with a
	// newer adapter. Restart: the manager replaces the pods, a few servers at a time.
	// Ignore: the pods stay as they are until another change replaces them. If unset, the
	// manager's configuration decides, and its default is Ignore.
	// +optional
	OnOperatorUpgrade RolloutPolicy `json:"onOperatorUpgrade,omitempty"`
}

// RolloutStrategy says how pods are replaced.
//
// +kubebuilder:validation:Enum=RollingUpdate;Recreate
type RolloutStrategy string

const (
	// RolloutRollingUpdate starts a pod before another goes.
	RolloutRollingUpdate RolloutStrategy = "RollingUpdate"
	// RolloutRecreate ends all pods before new ones start.
	RolloutRecreate RolloutStrategy = "Recreate"
)

// RolloutPolicy says whether a change from outside of the spec replaces pods.
//
// +kubebuilder:validation:Enum=Restart;Ignore
type RolloutPolicy string

const (
	// RolloutRestart replaces the pods.
	RolloutRestart RolloutPolicy = "Restart"
	// RolloutIgnore leaves the pods as they are.
	RolloutIgnore RolloutPolicy = "Ignore"
)

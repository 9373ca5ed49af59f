package v1alpha1

// The condition types of an MCPServer. Ready, Accepted, Available and Verified
// are always there; Reconciling and Stalled only while they are True, which is
// what kstatus expects. Every one carries the generation it was computed from.
//
// Types and reasons are API: they are not renamed within a version. Messages are
// for people and may change.
const (
	// ConditionReady is the summary that people and `kubectl wait` look at:
	// clients can use the server now. It is True when the server is Accepted
	// and Available and at least one instance is Verified. Where Verified is
	// Unknown, Ready follows Available.
	ConditionReady = "Ready"

	// ConditionAccepted is True when the spec and everything it refers to make
	// sense together. While it is False nothing that runs is changed.
	ConditionAccepted = "Accepted"

	// ConditionAvailable is True when enough pods are ready.
	ConditionAvailable = "Available"

	// ConditionVerified is True when a real MCP exchange through the client port
	// of at least one instance succeeded, and goes back to False when it no
	// longer does. It is Unknown when no exchange could be tried.
	ConditionVerified = "Verified"

	// ConditionReconciling is True while the controller is on its way to what
	// the spec asks for and needs no help. It is absent otherwise.
	ConditionReconciling = "Reconciling"

	// ConditionStalled is True when the controller cannot go on until the user
	// does something; the message says what. It is absent otherwise, and never
	// True together with Reconciling.
	ConditionStalled = "Stalled"
)

// Reasons of Ready. Where Ready is False because another condition is, it
// carries that condition's reason instead.
const (
	// ReasonReady: clients can use the server.
	ReasonReady = "Ready"

	// ReasonSuspended: spec.suspend is true. Neither Reconciling nor Stalled.
	ReasonSuspended = "Suspended"

	// ReasonScaledToZero: spec.replicas is 0. Neither Reconciling nor Stalled.
	ReasonScaledToZero = "ScaledToZero"
)

// Reasons of Accepted.
const (
	// ReasonAccepted: the spec and what it refers to make sense.
	ReasonAccepted = "Accepted"

	// ReasonReferenceNotFound: a Secret, ConfigMap, key or ServiceAccount that
	// the spec names does not exist; the message names it. It is looked for again
	// when it appears.
	ReasonReferenceNotFound = "ReferenceNotFound"

	// ReasonInvalidImage: spec.image is not an image reference, or names a
	// registry that is refused.
	ReasonInvalidImage = "InvalidImage"

	// ReasonCommandUnknown: spec.command was left out and the image names no
	// program either.
	ReasonCommandUnknown = "CommandUnknown"

	// ReasonNameConflict: an object that this server needs exists and belongs
	// to somebody else. It is left untouched.
	ReasonNameConflict = "NameConflict"
)

// Reasons of Available.
const (
	// ReasonAvailable: enough pods are ready.
	ReasonAvailable = "Available"

	// ReasonPodsStarting: pods are on their way and nothing is known to be wrong.
	ReasonPodsStarting = "PodsStarting"

	// ReasonPodsUnschedulable: no node takes the pods.
	ReasonPodsUnschedulable = "PodsUnschedulable"

	// ReasonImagePullFailed: the kubelet cannot pull the image.
	ReasonImagePullFailed = "ImagePullFailed"

	// ReasonServerExits: the server's process ends by itself; the message has
	// its exit code or signal and its last lines on standard error.
	ReasonServerExits = "ServerExits"

	// ReasonServerSilent: the server's process runs and does not answer.
	ReasonServerSilent = "ServerSilent"

	// ReasonPodsNotReady: pods run and are not ready for another reason, which
	// the message gives.
	ReasonPodsNotReady = "PodsNotReady"
)

// Reasons of Verified.
const (
	// ReasonVerified: a real MCP exchange succeeded.
	ReasonVerified = "Verified"

	// ReasonProbePending: no instance was asked yet.
	ReasonProbePending = "ProbePending"

	// ReasonProbeFailed: the exchange failed; the message says how.
	ReasonProbeFailed = "ProbeFailed"

	// ReasonUnreachable: the manager cannot connect to the instances, for
	// instance because of a NetworkPolicy. Verified is Unknown.
	ReasonUnreachable = "Unreachable"

	// ReasonFull: every session slot was taken, so nothing could be tried.
	// Verified is Unknown.
	ReasonFull = "Full"

	// ReasonCatalogTooLarge: the server lists more than is taken from it.
	ReasonCatalogTooLarge = "CatalogTooLarge"

	// ReasonInstancesDisagree: instances offer different tools, prompts or
	// resources. Verified stays True: each of them works.
	ReasonInstancesDisagree = "InstancesDisagree"
)

// Reasons of Reconciling, which otherwise carries the reason of the condition it
// waits for.
const (
	// ReasonProgressing: objects are being brought to what the spec asks for.
	ReasonProgressing = "Progressing"

	// ReasonImageUnresolved: the registry could not be asked for the image's
	// command and there is no earlier answer. It is asked again; setting
	// spec.command makes it unnecessary.
	ReasonImageUnresolved = "ImageUnresolved"

	// ReasonRetrying: the last attempt failed and another follows by itself.
	ReasonRetrying = "Retrying"
)

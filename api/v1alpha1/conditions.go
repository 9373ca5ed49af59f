package v1alpha1

// The condition types of an MCPServer. Available, Accepted and Verified are always
// there. Ready is there unless the server is stopped, by spec.suspend or
// spec.replicas 0. Reconciling and Stalled are there only while they are True, which
// is what kstatus expects. Every condition carries the generation of the spec that it
// is about. While one is about an earlier generation, Reconciling is True.
//
// Types and reasons are API: they are not renamed within a version. Messages are
// for people and may change.
const (
	// ConditionReady is the summary that people and `kubectl wait` look at:
	// clients can use the server now. It is True when the server is Available and
	// at least one instance is Verified. It is also True when Verified is Unknown
	// for the reasons Unreachable, Full or Unauthorized: then nothing speaks
	// against an available server. It is never True before an instance was asked.
	// A spec that is not accepted, or a new template whose pods do not start, does
	// not make a server not Ready while its pods serve. With AuthRequired they refuse
	// every client, so it is False. It is absent once a server that should have no
	// pods has none.
	ConditionReady = "Ready"

	// ConditionAccepted is True when the spec and everything it refers to make
	// sense together. While it is False, the manager changes nothing that runs, with
	// two exceptions: it stops the server if you ask for it, and adapters enforce the
	// access rules.
	ConditionAccepted = "Accepted"

	// ConditionAvailable is True when at least one pod is ready. While fewer are
	// than the spec asks for, or not all are of the current template, Reconciling
	// or Stalled is True as well.
	ConditionAvailable = "Available"

	// ConditionVerified is True when a real MCP exchange through the client port
	// of at least one instance succeeded, and goes back to False when it no
	// longer does. It is Unknown when no exchange could be tried.
	ConditionVerified = "Verified"

	// ConditionReconciling is True while the controller, the kubelet or the
	// adapter is on its way to what the spec asks for and needs no help. It is
	// absent otherwise.
	ConditionReconciling = "Reconciling"

	// ConditionStalled is True when nothing goes on until the user does something:
	// a spec is not accepted, or the second try of the kubelet or the adapter has
	// failed. The message says what to do, and the reason is that of the condition
	// that is False because of it. If some pods are ready and others cannot start,
	// it is the reason that Available would have without the ready ones. It is
	// absent otherwise, and never True together with Reconciling.
	ConditionStalled = "Stalled"

	// ConditionAccessEnforced is True when every ready pod enforces the current access
	// document. It is there only for a server with auth, access or audit, or that must
	// have auth.
	ConditionAccessEnforced = "AccessEnforced"
)

// Reasons of Ready. Where Ready is False because another condition is not True,
// it carries that condition's reason instead.
const (
	// ReasonReady: clients can use the server. Ready is True.
	ReasonReady = "Ready"
)

// Reasons of servers that were stopped.
const (
	// ReasonSuspended: spec.suspend is true. Available is False and Verified is
	// Unknown for this reason. Once the pods are gone, Ready is absent and so are
	// Reconciling and Stalled; before, Ready is False for this reason.
	ReasonSuspended = "Suspended"

	// ReasonScaledToZero: spec.replicas is 0. As with Suspended.
	ReasonScaledToZero = "ScaledToZero"
)

// Reasons of Accepted.
const (
	// ReasonAccepted: the spec and what it refers to make sense. Accepted is True.
	ReasonAccepted = "Accepted"

	// ReasonInvalidSpec: the API server refuses an object that the spec leads to,
	// such as a volume mount without a volume, and the message has its words; or an
	// issuer of spec.auth has the url of another, or of the cluster's own issuer; or
	// the rules are too large for adapters. Accepted is False, and Stalled is True.
	ReasonInvalidSpec = "InvalidSpec"

	// ReasonBoundExceeded: the spec asks for more than the manager's configuration
	// allows, such as replicas; the message says how much it allows. Accepted is
	// False, and Stalled is True.
	ReasonBoundExceeded = "BoundExceeded"

	// ReasonAuthRequired: the manager's configuration requires spec.auth in this
	// namespace, and the spec has none. No pods are made, and those that run refuse
	// every client. Accepted is False, Stalled is True, and Ready is False if there are
	// pods.
	ReasonAuthRequired = "AuthRequired"

	// ReasonReferenceNotFound: a Secret, ConfigMap, key or ServiceAccount that
	// the spec names does not exist; the message names it. Accepted is False and
	// Stalled is True, until it appears.
	ReasonReferenceNotFound = "ReferenceNotFound"

	// ReasonInvalidImage: spec.image is not an image reference, or its registry is
	// at an address that is never asked. Accepted is False, and Stalled is True. It
	// is looked at again.
	ReasonInvalidImage = "InvalidImage"

	// ReasonCommandUnknown: spec.command was left out, and the image names no
	// program either or the manager's configuration blocks its registry. Accepted is
	// False, and Stalled is True.
	ReasonCommandUnknown = "CommandUnknown"

	// ReasonIssuerUnavailable: the manager has never reached an issuer of spec.auth, or the
	// issuer has withdrawn all of its keys, so none of its tokens count; the message says
	// which one and why. Accepted is False, and Stalled is True. The manager asks again.
	ReasonIssuerUnavailable = "IssuerUnavailable"

	// ReasonNameConflict: an object that this server needs exists and belongs
	// to another owner. The manager does not touch it. Accepted is False, and
	// Stalled is True.
	ReasonNameConflict = "NameConflict"
)

// Reasons of Available.
const (
	// ReasonAvailable: at least one pod is ready. Available is True.
	ReasonAvailable = "Available"

	// ReasonPodsStarting: pods are on their way and nothing is known to be wrong;
	// the message says what they wait for and since when. Available is False, and
	// Reconciling is True.
	ReasonPodsStarting = "PodsStarting"

	// ReasonPodsNotCreated: pods cannot be created, for instance because of a
	// quota or Pod Security; the message has the API server's words. Available
	// is False, and Reconciling is True: quotas change. It is also the reason
	// while there is nothing to create pods from, as long as the server is not
	// Accepted or its image's command is not known.
	ReasonPodsNotCreated = "PodsNotCreated"

	// ReasonPodsUnschedulable: no node takes the pods. Available is False, and
	// Reconciling is True: nodes come.
	ReasonPodsUnschedulable = "PodsUnschedulable"

	// ReasonImagePullFailed: the kubelet cannot pull the image. Available is
	// False, and Stalled is True once the kubelet has tried for a minute;
	// Reconciling is True before.
	ReasonImagePullFailed = "ImagePullFailed"

	// ReasonServerExits: the server's process ends by itself, and the message has
	// its exit code or signal and the lines on standard error that say why; or it
	// cannot be started at all. Available is False, and Stalled is True after the
	// second time; Reconciling is True before.
	ReasonServerExits = "ServerExits"

	// ReasonServerSilent: the server's process runs and does not answer, or does
	// not listen at its port. A process that never answered has
	// spec.session.startTimeout for that. Available is False, and Stalled is True
	// when a second process does not answer either; Reconciling is True before.
	ReasonServerSilent = "ServerSilent"

	// ReasonServerIncompatible: the server answers, and not as an MCP server of
	// its transport does, for instance because its path is another. Available is
	// False, and Stalled is True after the second time; Reconciling is True before.
	ReasonServerIncompatible = "ServerIncompatible"

	// ReasonPodsNotReady: pods run and are not ready for another reason, which
	// the message gives. Available is False, and Reconciling is True.
	ReasonPodsNotReady = "PodsNotReady"
)

// Reasons of Verified.
const (
	// ReasonVerified: a real MCP exchange succeeded. Verified is True.
	ReasonVerified = "Verified"

	// ReasonProbePending: no instance was asked yet. Verified is Unknown, Ready
	// is False, and Reconciling is True.
	ReasonProbePending = "ProbePending"

	// ReasonProbeFailed: the exchange failed; the message says how. Verified is
	// False, and while pods are ready Reconciling is True: the manager asks again.
	ReasonProbeFailed = "ProbeFailed"

	// ReasonUnreachable: the manager cannot connect to the instances, for
	// instance because of a NetworkPolicy. Verified is Unknown, and Ready
	// follows Available.
	ReasonUnreachable = "Unreachable"

	// ReasonFull: every session slot was taken, so nothing could be tried.
	// Verified is Unknown, and Ready follows Available.
	ReasonFull = "Full"

	// ReasonUnauthorized: the server wants credentials that the manager does not
	// have, so nothing could be tried. Verified is Unknown, and Ready follows
	// Available.
	ReasonUnauthorized = "Unauthorized"

	// ReasonCatalogTooLarge: the server lists more than is taken from it; what
	// was taken is in the status. Verified is True: the server works.
	ReasonCatalogTooLarge = "CatalogTooLarge"

	// ReasonInstancesDisagree: instances offer different tools, prompts or
	// resources. Verified is True: each of them works.
	ReasonInstancesDisagree = "InstancesDisagree"
)

// Reasons of AccessEnforced.
const (
	// ReasonAccessEnforced: every ready pod enforces the current rules. AccessEnforced is
	// True.
	ReasonAccessEnforced = "AccessEnforced"

	// ReasonAccessPending: the current rules have not reached every ready pod yet.
	// AccessEnforced is Unknown.
	ReasonAccessPending = "AccessPending"

	// ReasonAccessNotEnforced: a ready pod has an adapter that is too old to enforce rules, and
	// serves everyone until it is replaced; or adapters cannot take the rules of the spec,
	// for instance because they are too large, and enforce the last ones, or refuse every
	// client if the last ones are more open than the spec. AccessEnforced and Ready are False.
	ReasonAccessNotEnforced = "AccessNotEnforced"
)

// Reasons of Reconciling, which otherwise carries the reason of the condition it
// waits for.
const (
	// ReasonProgressing: the manager is still applying the spec, or a rollout is in progress.
	ReasonProgressing = "Progressing"

	// ReasonImageUnresolved: the image's command is not known, and there is no
	// earlier answer. The registry is asked again. If it cannot be reached,
	// Reconciling is True; setting spec.command makes it unnecessary. If it has no
	// such image or gives no access, and said so twice, the user must act: Accepted
	// is False and Stalled is True, until it has the image.
	ReasonImageUnresolved = "ImageUnresolved"

	// ReasonRolloutQueued: a newer adapter, or a change of what the spec refers to,
	// asks for a rollout, and the manager rolls out a limited number of servers at a time.
	// Until then, the pods keep serving. A change of the spec never waits.
	ReasonRolloutQueued = "RolloutQueued"

	// ReasonRetrying: the last attempt failed and another follows by itself.
	ReasonRetrying = "Retrying"
)

package reason

import (
	"slices"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// Table is the whole table, in the order of the documentation.
func Table() []Row {
	return slices.Concat(accepted(), available(), verified(), enforced(), reconciling())
}

func accepted() []Row {
	const condition = mcpv1alpha1.ConditionAccepted
	return []Row{
		{condition, []string{mcpv1alpha1.ReasonAccepted}, "True", "the spec and what it refers to make sense", ""},
		{
			condition, []string{mcpv1alpha1.ReasonInvalidSpec}, "False, Stalled",
			"the API server refuses an object that the spec leads to, and the message has its words; or two issuers in `auth` have the same url; or the rules are too large for adapters: see AccessEnforced",
			"Correct the field that the message names.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonBoundExceeded}, "False, Stalled",
			"the spec asks for more than the manager's configuration allows; the message names the field and what is allowed: [Defaults and bounds](install.md#defaults-and-bounds)",
			"Ask for less, or ask your platform team for more.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonAuthRequired}, "False, Stalled; Ready is False",
			"the manager's configuration requires `auth` in this namespace, and the spec has none; no pods are made, and those that run refuse every client: [Authentication](install.md#authentication)",
			anyOf(AddAuth),
		},
		{
			condition, []string{mcpv1alpha1.ReasonReferenceNotFound}, "False, Stalled",
			"a Secret, ConfigMap, key or ServiceAccount is missing",
			"Create what is missing, or mark it `optional`.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonInvalidImage}, "False, Stalled",
			"`image` is no image reference, or its registry is one that is never asked",
			anyOf(CorrectImage),
		},
		{
			condition, []string{mcpv1alpha1.ReasonImageUnresolved}, "False, Stalled",
			"`command` was left out, and the registry has said at least twice that it has no such image or gives no access",
			anyOf(PushImage, CheckCredentials),
		},
		{
			condition, []string{mcpv1alpha1.ReasonCommandUnknown}, "False, Stalled",
			"`command` was left out, and the image names no program or the operator may not ask its registry",
			anyOf(SetCommand),
		},
		{
			condition, []string{mcpv1alpha1.ReasonIssuerUnavailable}, "False, Stalled",
			"the operator has never got the keys of an issuer in `auth`, or the issuer has withdrawn all of them, so none of its tokens count; the message says which one and why; " +
				"everything else of the spec holds, and tokens of other issuers count",
			anyOf(ReachIssuer),
		},
		{
			condition, []string{mcpv1alpha1.ReasonNameConflict}, "False, Stalled",
			"an object of that name belongs to another owner, or the Secret holds no key",
			anyOf(DeleteOther) + " If it is the Secret NAME-keys: " + anyOf(DeleteKeys),
		},
		{
			condition, []string{mcpv1alpha1.ReasonProgressing, mcpv1alpha1.ReasonImageUnresolved, mcpv1alpha1.ReasonRetrying}, "Unknown, Reconciling",
			"not found out yet, see below", "",
		},
	}
}

func available() []Row {
	const condition = mcpv1alpha1.ConditionAvailable
	return []Row{
		{condition, []string{mcpv1alpha1.ReasonAvailable}, "True", "at least one pod is ready", ""},
		{
			condition, []string{mcpv1alpha1.ReasonPodsStarting}, "False, Reconciling",
			"pods are on their way; the message says what they wait for and since when, and of a server that does not listen yet: " + string(CheckPortLater),
			"Wait. If it takes long, look at `kubectl describe pod`.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonPodsNotCreated}, "False, Reconciling; an Event after a minute",
			"the API server does not let pods be created (quota, Pod Security), or there is nothing to create them from yet",
			"Raise the quota, change the security contexts, or see Accepted.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonPodsUnschedulable}, "False, Reconciling; an Event after a minute",
			"no node takes the pods",
			"Add nodes, lower the requests, or set tolerations.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonImagePullFailed}, "False, Stalled after a minute",
			"the kubelet cannot pull the image, or the adapter's",
			anyOf(CheckPullSecrets, CheckRegistry, BringImage, CheckRuntime, SignImage, BringAdapter),
		},
		{
			condition, []string{mcpv1alpha1.ReasonServerExits}, "False, Stalled after the second time",
			"the process ends by itself, or cannot be started; the message has the exit code or signal and, of what the process wrote to standard error, " +
				"the first lines, those that name an error, and the last, without stack frames",
			anyOf(CorrectServer, CheckCommand, MoreMemory, MoreProcesses),
		},
		{
			condition, []string{mcpv1alpha1.ReasonServerIncompatible}, "False, Stalled after the second time",
			"the server responds, but not with valid MCP for its `transport`; the message has what it returned, such as `POST http://127.0.0.1:3000/mcp: HTTP 404`",
			anyOf(CheckEndpoint),
		},
		{
			condition, []string{mcpv1alpha1.ReasonServerSilent}, "False, Stalled after the second time",
			"the process runs and does not answer, or no process listens at its port; a process that never answered has `session.startTimeout` for that. " +
				"What it printed to standard output instead is in the message, the first line of it",
			anyOf(CheckTransport, CheckPort) + " Raise `spec.session.startTimeout` if it only needs longer to start.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonPodsNotReady}, "False, Reconciling",
			"pods run and are not ready for another reason, which the message has",
			anyOf(OtherPorts, MoreAdapterMemory) + " Often `kubectl logs POD -c mcp-adapter` has more.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonSuspended, mcpv1alpha1.ReasonScaledToZero}, "False",
			"you stopped the server", "To start it, set `spec.suspend` to false, or `spec.replicas`.",
		},
	}
}

func verified() []Row {
	const condition = mcpv1alpha1.ConditionVerified
	return []Row{
		{condition, []string{mcpv1alpha1.ReasonVerified}, "True", "a real MCP exchange through a pod's client port succeeded", ""},
		{
			condition, []string{mcpv1alpha1.ReasonCatalogTooLarge}, "True",
			"the server lists more than is taken from it (see Limits); the status has the last that could be taken",
			"Have the server list less, or live with it.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonInstancesDisagree}, "True",
			"pods offer different tools, prompts or resources; the message says which",
			"Find out why, unless a rollout is going on.",
		},
		{condition, []string{mcpv1alpha1.ReasonProbePending}, "Unknown", "no ready pod was asked yet", "Wait."},
		{
			condition, []string{mcpv1alpha1.ReasonProbeFailed}, "False; Reconciling while pods are ready",
			"the exchange failed; the message says how. Also when no pod is ready because the server exits, is incompatible or is silent",
			"Do what the message says.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonUnreachable}, "Unknown",
			"the manager cannot connect to the pods, or a service mesh closes its connections, which says nothing about clients",
			anyOf(LetManagerIn) + " See [install.md, Network](install.md#network).",
		},
		{
			condition, []string{mcpv1alpha1.ReasonFull}, "Unknown",
			"the pod answers 429 or 5xx because a limit is reached, or a server that speaks HTTP does, so nothing could be tried",
			anyOf(MoreSessions),
		},
		{
			condition, []string{mcpv1alpha1.ReasonUnauthorized}, "Unknown",
			"the server answers 401 or 403: it wants credentials that the manager does not have",
			"Do nothing, if clients have them.",
		},
		{condition, []string{mcpv1alpha1.ReasonSuspended, mcpv1alpha1.ReasonScaledToZero}, "Unknown", "there is no pod to ask", ""},
	}
}

func enforced() []Row {
	const condition = mcpv1alpha1.ConditionAccessEnforced
	return []Row{
		{condition, []string{mcpv1alpha1.ReasonAccessEnforced}, "True", "every ready pod enforces the current `auth`, `access` and `audit`", ""},
		{
			condition, []string{mcpv1alpha1.ReasonAccessPending}, "Unknown",
			"no pod is ready, or the current rules have not reached every ready pod, or the operator cannot ask a pod; pods without them enforce those that they have",
			"Wait. If it lasts, see Verified, whose message says why a pod cannot be asked.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonAccessNotEnforced}, "False, Stalled; Ready is False, too",
			"a ready pod has an adapter that is too old to enforce rules, so anyone who can reach it can call every tool; " +
				"or adapters cannot take the rules of the spec, mostly because they are too large: pods then keep enforcing the last rules, or refuse every client if the last rules are more open than the spec, for instance because `auth` is new",
			anyOf(ReplacePods, ShrinkAccess, CorrectAccess),
		},
	}
}

func reconciling() []Row {
	const condition = mcpv1alpha1.ConditionReconciling
	return []Row{
		{
			condition, []string{mcpv1alpha1.ReasonProgressing}, "True",
			"objects or pods are being brought to what the spec asks for, or the registry is being asked", "Wait.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonImageUnresolved}, "True",
			"the registry could not tell the image's command; the message says why",
			anyOf(SkipRegistry) + " See [The image](#the-image).",
		},
		{
			condition, []string{mcpv1alpha1.ReasonRolloutQueued}, "True",
			"a newer adapter, or a Secret or ConfigMap that has changed, asks for a rollout, and the operator rolls out only so many servers at a time " +
				"([install.md](install.md#rollouts)); the pods serve on",
			"Wait, or change the spec, which never waits.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonRetrying}, "True",
			"the last attempt failed, and another follows by itself; the message has the error",
			"If it lasts, look at the operator's log and rights.",
		},
	}
}

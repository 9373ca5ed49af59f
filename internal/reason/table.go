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
		{condition, []string{mcpv1alpha1.ReasonAccepted}, "True", "the spec is valid, and everything that it refers to exists", ""},
		{
			condition, []string{mcpv1alpha1.ReasonInvalidSpec}, "False, Stalled",
			"one of three problems: the API server rejects an object that Slipway builds from the spec, and the message quotes the error; two issuers in `auth` have the same url; or the access rules are too large, see [AccessEnforced](#accessenforced)",
			"Correct the field named in the message.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonBoundExceeded}, "False, Stalled",
			"the spec asks for more than your platform team allows; the message names the field and the limit. See [Defaults and bounds](install.md#defaults-and-bounds)",
			"Lower the value, or ask your platform team to raise the limit.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonAuthRequired}, "False, Stalled; Ready is False",
			"your platform team requires `auth` in this namespace, and the spec has none. Slipway creates no pods, and running pods refuse every client. See [Authentication](install.md#authentication)",
			anyOf(AddAuth),
		},
		{
			condition, []string{mcpv1alpha1.ReasonReferenceNotFound}, "False, Stalled",
			"a Secret, ConfigMap, key or ServiceAccount that the spec refers to does not exist",
			"Create the missing object or key, or mark the reference `optional`.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonInvalidImage}, "False, Stalled",
			"`image` is not a valid image reference, or its registry has an address that Slipway never contacts",
			anyOf(CorrectImage),
		},
		{
			condition, []string{mcpv1alpha1.ReasonImageUnresolved}, "False, Stalled",
			"a stdio server has no `command`, and the registry has answered at least twice that the image does not exist or that it denies access",
			anyOf(PushImage, CheckCredentials),
		},
		{
			condition, []string{mcpv1alpha1.ReasonCommandUnknown}, "False, Stalled",
			"a stdio server has no `command`, and the image has no entrypoint, or the manager's configuration blocks its registry",
			anyOf(SetCommand),
		},
		{
			condition, []string{mcpv1alpha1.ReasonIssuerUnavailable}, "False, Stalled",
			"the manager has no public keys for an issuer in `auth`. Either the manager could never fetch the keys, or the issuer has withdrawn all of them. Adapters reject tokens of this issuer, and accept tokens of other issuers. " +
				"The message names the issuer and the error. The rest of the spec takes effect",
			anyOf(ReachIssuer),
		},
		{
			condition, []string{mcpv1alpha1.ReasonNameConflict}, "False, Stalled",
			"an object that Slipway needs to create already exists and does not belong to the MCPServer, or the Secret `NAME-keys` holds no valid key",
			anyOf(DeleteOther) + " If the Secret `NAME-keys` holds no valid key: " + string(DeleteKeys) + ".",
		},
		{
			condition, []string{mcpv1alpha1.ReasonProgressing, mcpv1alpha1.ReasonImageUnresolved, mcpv1alpha1.ReasonRetrying}, "Unknown, Reconciling",
			"Slipway does not know yet whether the spec is valid: see [Reconciling](#reconciling-and-stalled)", "",
		},
	}
}

func available() []Row {
	const condition = mcpv1alpha1.ConditionAvailable
	return []Row{
		{condition, []string{mcpv1alpha1.ReasonAvailable}, "True", "at least one pod is ready", ""},
		{
			condition, []string{mcpv1alpha1.ReasonPodsStarting}, "False, Reconciling",
			"pods are starting; the message says what they wait for and since when. For an HTTP server that does not listen on its port yet, the message adds: " + string(CheckPortLater),
			"Wait. If it takes too long, run `kubectl describe pod`.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonPodsNotCreated}, "False. Reconciling, or Stalled if Accepted is False. For a quota or policy, an Event after a minute",
			"the API server refuses to create the pods, because of a quota or Pod Security; or Accepted is not True, so Slipway has no pod template yet",
			"Raise the quota, change the security contexts, or fix what Accepted reports.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonPodsUnschedulable}, "False, Reconciling; an Event after a minute",
			"the scheduler finds no node for the pods",
			"Add nodes, lower the requests, or set tolerations.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonImagePullFailed}, "False, Stalled after a minute",
			"the kubelet cannot pull the server's image or the adapter's image",
			anyOf(CheckPullSecrets, CheckRegistry, BringImage, CheckRuntime, SignImage, BringAdapter),
		},
		{
			condition, []string{mcpv1alpha1.ReasonServerExits}, "False, Stalled after the second time",
			"the server's process exits by itself or cannot start. The message has the exit code or signal, and lines from standard error: " +
				"the first ones, those that mention an error, and the last ones, without stack frames",
			anyOf(CorrectServer, CheckCommand, MoreMemory, MoreProcesses),
		},
		{
			condition, []string{mcpv1alpha1.ReasonServerIncompatible}, "False, Stalled after the second time",
			"the server responds, but not with valid MCP for its `transport`; the message has the response, such as `POST http://127.0.0.1:3000/mcp: HTTP 404`",
			anyOf(CheckEndpoint),
		},
		{
			condition, []string{mcpv1alpha1.ReasonServerSilent}, "False, Stalled after the second time",
			"the process runs but does not answer, or no process listens on the port. A new process has `session.startTimeout` for its first answer. " +
				"If the process printed text that is not MCP to standard output, the message has the first line of this text",
			anyOf(CheckTransport, CheckPort) + " If the server only needs more time to start, raise `spec.session.startTimeout`.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonPodsNotReady}, "False, Reconciling",
			"pods run but are not ready for another reason; see the message",
			anyOf(OtherPorts, MoreAdapterMemory) + " For details, run `kubectl logs POD -c mcp-adapter`.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonSuspended, mcpv1alpha1.ReasonScaledToZero}, "False",
			"you stopped the server", "To start it, set `spec.suspend` to false, or `spec.replicas` to 1 or more.",
		},
	}
}

func verified() []Row {
	const condition = mcpv1alpha1.ConditionVerified
	return []Row{
		{condition, []string{mcpv1alpha1.ReasonVerified}, "True", "a real MCP exchange with a pod, through the port that clients use, succeeded", ""},
		{
			condition, []string{mcpv1alpha1.ReasonCatalogTooLarge}, "True",
			"the server lists more tools, prompts or resources than Slipway reads: see [Limits](#limits). The status keeps the last list that Slipway could read",
			"Reduce what the server lists, or accept that the status is incomplete.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonInstancesDisagree}, "True",
			"pods offer different tools, prompts or resources; the message says which",
			"During a rollout, wait. Otherwise find out why the pods differ.",
		},
		{condition, []string{mcpv1alpha1.ReasonProbePending}, "Unknown", "pods are ready, but Slipway has not checked one yet", "Wait."},
		{
			condition, []string{mcpv1alpha1.ReasonProbeFailed}, "False; Reconciling while pods are ready",
			"the MCP exchange failed, or no pod is ready because the server exits, is incompatible or is silent; the message has the error",
			"Follow the advice in the message.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonUnreachable}, "Unknown",
			"the manager cannot connect to the pods, or a service mesh closes its connections. Clients may still be able to connect",
			anyOf(LetManagerIn) + " See [install.md, Network](install.md#network).",
		},
		{
			condition, []string{mcpv1alpha1.ReasonFull}, "Unknown",
			"the pod, or a server that speaks HTTP, answers 429 or 5xx because a limit is reached, so Slipway could not check it",
			anyOf(MoreSessions),
		},
		{
			condition, []string{mcpv1alpha1.ReasonUnauthorized}, "Unknown",
			"the server answers 401 or 403: it requires credentials that the manager does not have",
			"Nothing, if your clients have credentials: Slipway cannot verify such a server.",
		},
		{condition, []string{mcpv1alpha1.ReasonSuspended, mcpv1alpha1.ReasonScaledToZero}, "Unknown", "there is no pod to check", ""},
	}
}

func enforced() []Row {
	const condition = mcpv1alpha1.ConditionAccessEnforced
	return []Row{
		{condition, []string{mcpv1alpha1.ReasonAccessEnforced}, "True", "every ready pod enforces the current `auth`, `access` and `audit`", ""},
		{
			condition, []string{mcpv1alpha1.ReasonAccessPending}, "Unknown",
			"no pod is ready, or a ready pod does not have the current rules yet, or the manager cannot reach a pod. A pod without the current rules keeps enforcing its earlier rules",
			"Wait. If it lasts, read the message of Verified: it says why the manager cannot reach a pod.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonAccessNotEnforced}, "False, Stalled; Ready is False, too",
			"one of two problems. A ready pod has an adapter that is too old to enforce rules: anyone who can reach this pod can call every tool. " +
				"Or the adapters cannot load the new rules, usually because the new rules are too large. If the old rules are at least as strict as the spec, the pods keep enforcing the old rules. If the old rules allow more, for example because `auth` is new, the pods refuse every client",
			anyOf(ReplacePods, ShrinkAccess, CorrectAccess),
		},
	}
}

func reconciling() []Row {
	const condition = mcpv1alpha1.ConditionReconciling
	return []Row{
		{
			condition, []string{mcpv1alpha1.ReasonProgressing}, "True",
			"the manager is updating objects or pods, or waiting for the registry", "Wait.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonImageUnresolved}, "True",
			"the manager could not read the image's command from the registry; the message has the error",
			anyOf(SkipRegistry) + " See [Image and command](#image-and-command).",
		},
		{
			condition, []string{mcpv1alpha1.ReasonRolloutQueued}, "True",
			"the manager needs to replace the pods, because of a newer adapter or because a Secret or ConfigMap changed. It replaces the pods of a limited number of servers at a time " +
				"([install.md](install.md#rollouts)). The current pods keep serving",
			"Wait. A change of the spec does not wait in this queue.",
		},
		{
			condition, []string{mcpv1alpha1.ReasonRetrying}, "True",
			"the last attempt failed, and the manager retries with back-off; the message has the error",
			"If it lasts, ask your platform team to check the manager's log and RBAC rights.",
		},
	}
}

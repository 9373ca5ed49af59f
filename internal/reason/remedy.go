package reason

import (
	"regexp"
	"strings"
)

// Remedy is what to do about one cause of a reason, as the message of a condition says it.
type Remedy string

// The remedies.
const (
	SetCommand       Remedy = `set spec.command to the server's program, such as ["node", "dist/index.js"]`
	PushImage        Remedy = "correct spec.image, or push the image"
	CheckCredentials Remedy = "check spec.image and spec.imagePullSecrets, or set spec.command if only the nodes have registry credentials"
	SkipRegistry     Remedy = "set spec.command, and the manager no longer needs the registry"
	DeleteOther      Remedy = "delete that object, or create the MCPServer under another name"
	AddAuth          Remedy = "add spec.auth (which tokens to accept) and spec.access.rules (which callers can use which tools)"
	ReachIssuer      Remedy = "check url and caBundle in spec.auth.issuers, and that the manager can reach the issuer"
	CorrectAccess    Remedy = "correct spec.auth and spec.access"
	ShrinkAccess     Remedy = "use fewer or shorter rules in spec.access, or fewer issuers in spec.auth"
	ReplacePods      Remedy = "replace the pods with kubectl mcp refresh, or with a new value of the annotation mcp.slipway.dev/refresh"
	DeleteKeys       Remedy = "delete that Secret, and the manager creates a new one"

	CorrectImage     Remedy = "correct spec.image"
	CheckPullSecrets Remedy = "check spec.image, and spec.imagePullSecrets if the registry is private"
	CheckRegistry    Remedy = "check spec.image, and that the node can reach the registry"
	BringImage       Remedy = "load the image onto the node, or change spec.imagePullPolicy from Never"
	CheckRuntime     Remedy = "check the image and the node's container runtime"
	SignImage        Remedy = "sign the image as the node's signature policy requires"
	BringAdapter     Remedy = "set spec.imagePullSecrets if the adapter's registry is private, or ask your platform team to make the adapter's image available to the nodes"

	CheckCommand  Remedy = "check spec.command, spec.args and spec.workingDir"
	MoreMemory    Remedy = "raise spec.resources.limits.memory"
	MoreProcesses Remedy = "raise the node's limit on processes, or lower spec.session.maxPerPod"
	// CorrectServer is for a server that ends by itself. What it wrote says what to correct.
	CorrectServer Remedy = "resolve the error in its output, which often points to spec.env, spec.envFrom or spec.args"

	CheckTransport Remedy = "check that spec.transport matches the server: stdio, streamable-http or sse, and the port if it speaks HTTP"
	CheckEndpoint  Remedy = "check that spec.transport has the server's type, port and path"
	CheckPortLater Remedy = "if this lasts, check the port in spec.transport"
	CheckPort      Remedy = "check the port in spec.transport, and that the server listens on 127.0.0.1"

	OtherPorts        Remedy = "configure the server to listen on ports other than 16270, 16271 and 16272, which the adapter in the same pod uses"
	MoreAdapterMemory Remedy = "raise spec.adapter.resources.limits.memory"

	MoreSessions Remedy = "if clients are refused too, raise spec.session.maxPerPod or spec.replicas"
	LetManagerIn Remedy = "if a NetworkPolicy is the cause, allow the manager's namespace to reach ports 16270 and 16271"
)

// remedies are all of them.
var remedies = []Remedy{
	SetCommand, PushImage, CheckCredentials, SkipRegistry, DeleteOther, DeleteKeys, AddAuth, ReachIssuer, CorrectAccess, ShrinkAccess, ReplacePods,
	CheckPullSecrets, CheckRegistry, BringImage, CheckRuntime, SignImage, BringAdapter, CorrectImage,
	CheckCommand, MoreMemory, MoreProcesses, CorrectServer, CheckEndpoint, CheckTransport, CheckPort, CheckPortLater,
	OtherPorts, MoreAdapterMemory, MoreSessions, LetManagerIn,
}

// Sentence is the remedy as a sentence.
func (r Remedy) Sentence() string { return strings.ToUpper(string(r[:1])) + string(r[1:]) + "." }

var field = regexp.MustCompile(`spec(\.\w+)+`)

// anyOf is the advice to use one of the remedies, in Markdown. The message of the condition says which.
func anyOf(choices ...Remedy) string {
	if len(choices) == 1 {
		return markdown(choices[0].Sentence())
	}
	steps := make([]string, len(choices))
	for i, choice := range choices {
		steps[i] = markdown(string(choice))
	}
	return "Do the step that the message names: " + strings.Join(steps, "; ") + "."
}

// markdown marks the names of fields in a text.
func markdown(text string) string { return field.ReplaceAllString(text, "`$0`") }

// Split takes the remedy out of the message of a condition: it returns what is the case, and what to do.
// If the message has no remedy, the advice is that for its reason.
func Split(reason, message string) (what, advice string) {
	at, remedy := lastRemedy(message)
	if remedy == "" {
		return message, AdviceForReady(reason)
	}
	before, after := strings.TrimRight(message[:at], ";: "), strings.TrimLeft(message[at+len(remedy):], ";,: ")
	if after != "" {
		before += "; " + strings.TrimPrefix(after, "and ")
	}
	return before, remedy.Sentence()
}

// crashes is what the message of a server that is Ready says of processes or containers that end by
// themselves: a sentence with the number, the cause and the remedy, which nothing follows.
var crashes = regexp.MustCompile(`(?s)(?:^|; )(\d+ of \d+ processes .*|the server's container of pod \S+ ended by itself .*)$`)

// Crashes is the part of the message of a Ready server that says that its processes end by themselves, or
// empty.
func Crashes(message string) string {
	if found := crashes.FindStringSubmatch(message); found != nil {
		return found[1]
	}
	return ""
}

// lastRemedy finds the last remedy of a message, and of two at the same place the longer. What a server
// wrote comes earlier in a message, and may have the words of a remedy, too.
func lastRemedy(message string) (at int, found Remedy) {
	for _, remedy := range remedies {
		for _, mark := range []string{"; ", ": "} {
			i := strings.LastIndex(message, mark+string(remedy)) + len(mark)
			if i < len(mark) || i < at || i == at && len(remedy) < len(found) {
				continue
			}
			at, found = i, remedy
		}
	}
	return at, found
}

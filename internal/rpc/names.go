package rpc

// Members of _meta that revision 2026-07-28 defines. Clients fill the first four of every
// request; servers fill the last of what belongs to a subscription.
const (
	MetaProtocolVersion    = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo         = "io.modelcontextprotocol/clientInfo"
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaLogLevel           = "io.modelcontextprotocol/logLevel"
	MetaServerInfo         = "io.modelcontextprotocol/serverInfo"
	MetaSubscriptionID     = "io.modelcontextprotocol/subscriptionId"
)

// Methods that the adapter translates from one era to the other.
const (
	MethodCallTool     = "tools/call"
	MethodGetPrompt    = "prompts/get"
	MethodReadResource = "resources/read"
	MethodElicit       = "elicitation/create"
	MethodSample       = "sampling/createMessage"
	MethodListRoots    = "roots/list"
)

// NameOf is the name of the tool, resource or task of a request that has a header for it (M-13), and
// the member that it stands in. The member is empty for other methods. The name is nil if it is not
// there or no string.
func NameOf(request []byte, e *Envelope) (name []byte, member string) {
	switch string(e.Method) {
	case MethodCallTool, MethodGetPrompt:
		return e.Name, "params.name"
	case MethodReadResource:
		return e.URI, "params.uri"
	case "tasks/get", "tasks/update", "tasks/cancel":
		found, err := Find(request, e.Params, "taskId")
		if err != nil {
			return nil, "params.taskId"
		}
		return Text(request, found[0]), "params.taskId"
	}
	return nil, ""
}

// TakesInput says whether a result of the method may ask for input (I-01).
func TakesInput(method string) bool {
	return method == MethodCallTool || method == MethodGetPrompt || method == MethodReadResource
}

// LogLevels are the levels of log messages, from the least severe to the most severe.
var LogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

package rpc

// Methods of messages that the adapter writes itself.
const (
	MethodInitialize = "initialize"
	MethodCancelled  = "notifications/cancelled" // the sender of a request needs no answer to it any more
)

// Initialized is the notification by which a client says that the session has begun.
const Initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// AppendRequest appends a request with these members of params.
func AppendRequest(dst, id []byte, method, params string) []byte {
	dst = append(appendHead(dst, id), `,"method":"`+method+`","params":{`...)
	return append(append(dst, params...), "}}"...)
}

// InitializeParams are the members of params by which the adapter begins a session as a
// client with these capabilities.
func InitializeParams(revision, capabilities, version string) string {
	return `"protocolVersion":"` + revision + `","capabilities":` + capabilities + `,"clientInfo":` + ClientInfo(version)
}

// ClientInfo is how the adapter, in some version, names itself to servers.
func ClientInfo(version string) string {
	return `{"name":"slipway","version":` + string(AppendString(nil, version)) + `}`
}

// AppendCancelled appends a notification that a request is cancelled. The reason may be
// empty.
func AppendCancelled(dst, id []byte, reason string) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":"`+MethodCancelled+`","params":{"requestId":`...)
	dst = append(dst, id...)
	if reason != "" {
		dst = AppendString(append(dst, `,"reason":`...), reason)
	}
	return append(dst, "}}"...)
}

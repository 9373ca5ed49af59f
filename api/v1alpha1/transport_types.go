package v1alpha1

// Transport says how the server in the image speaks MCP. Each type has a block of
// its own: stdio, streamableHTTP for type streamable-http, and sse. Only the block of
// the chosen type may be set. The types are spelled as MCP clients spell them in
// their configuration.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'stdio' || !has(self.stdio)",message="transport.stdio must be left out unless transport.type is stdio",fieldPath=".stdio",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.type == 'streamable-http' || !has(self.streamableHTTP)",message="transport.streamableHTTP must be left out unless transport.type is streamable-http",fieldPath=".streamableHTTP",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.type == 'sse' || !has(self.sse)",message="transport.sse must be left out unless transport.type is sse",fieldPath=".sse",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.type != 'streamable-http' || has(self.streamableHTTP)",message="transport.streamableHTTP.port must be set when transport.type is streamable-http: it is the port that the server listens on",fieldPath=".streamableHTTP",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="self.type != 'sse' || has(self.sse)",message="transport.sse.port must be set when transport.type is sse: it is the port that the server listens on",fieldPath=".sse",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="self.type != 'sse' || !has(self.sessions) || self.sessions != 'Stateless'",message="transport.sessions must not be Stateless when transport.type is sse: that transport has sessions",fieldPath=".sessions"
type Transport struct {
	// type is what the server itself speaks. stdio: JSON-RPC messages on standard
	// input and output. streamable-http: one HTTP endpoint. sse: the HTTP+SSE
	// transport of protocol revision 2024-11-05. Clients always find Streamable
	// HTTP at the server's URL, whatever the type.
	// +required
	Type TransportType `json:"type,omitempty"`

	// sessions says which kind of protocol revision the server itself speaks. Stateful:
	// revisions up to 2025-11-25, which open a session with initialize. Stateless:
	// revision 2026-07-28, which has no sessions. Auto (default): the adapter asks the
	// server. Set Stateful or Stateless if the server fails when it is asked. An sse
	// server cannot be Stateless. This setting does not limit which clients can connect:
	// session.statelessClients decides about those of revision 2026-07-28.
	// +optional
	Sessions ServerSessions `json:"sessions,omitempty"`

	// stdio configures a stdio server. It may be left out.
	// +optional
	Stdio *StdioTransport `json:"stdio,omitempty"`

	// streamableHTTP says where a streamable-http server listens inside its pod.
	// +optional
	StreamableHTTP *StreamableHTTPTransport `json:"streamableHTTP,omitempty"`

	// sse says where an sse server listens inside its pod.
	// +optional
	SSE *SSETransport `json:"sse,omitempty"`
}

// TransportType is what an MCP server speaks.
//
// +kubebuilder:validation:Enum=stdio;streamable-http;sse
type TransportType string

const (
	// TransportStdio is JSON-RPC on standard input and output.
	TransportStdio TransportType = "stdio"
	// TransportStreamableHTTP is one HTTP endpoint that answers with JSON or an event stream.
	TransportStreamableHTTP TransportType = "streamable-http"
	// TransportSSE is the HTTP+SSE transport of protocol revision 2024-11-05.
	TransportSSE TransportType = "sse"
)

// StdioTransport configures a server that speaks on standard input and output.
type StdioTransport struct {
	// framing is how the server delimits messages. Newline (default): one message per
	// line, as MCP requires. ContentLength: a Content-Length header before each
	// message, as in the Language Server Protocol.
	// +optional
	// +kubebuilder:default=Newline
	Framing StdioFraming `json:"framing,omitempty"`
}

// StdioFraming says how messages on standard input and output are told apart.
//
// +kubebuilder:validation:Enum=Newline;ContentLength
type StdioFraming string

const (
	// FramingNewline has one message a line.
	FramingNewline StdioFraming = "Newline"
	// FramingContentLength has a Content-Length header before each message.
	FramingContentLength StdioFraming = "ContentLength"
)

// ServerSessions says which kind of protocol revision a server speaks.
//
// +kubebuilder:validation:Enum=Auto;Stateful;Stateless
type ServerSessions string

const (
	// ServerSessionsAuto finds out which kind the server speaks.
	ServerSessionsAuto ServerSessions = "Auto"
	// ServerSessionsStateful is every revision up to 2025-11-25, which have sessions.
	ServerSessionsStateful ServerSessions = "Stateful"
	// ServerSessionsStateless is every revision from 2026-07-28 on, which have none.
	ServerSessionsStateless ServerSessions = "Stateless"
)

// StreamableHTTPTransport says where a streamable-http server listens inside its pod.
type StreamableHTTPTransport struct {
	// port is the port that the server listens on. 16270 to 16279 are reserved for the
	// adapter, which shares the pod's network with the server.
	// +required
	Port ServerPort `json:"port,omitempty"`

	// path is the path of the server's MCP endpoint. Defaults to /mcp.
	// +optional
	// +kubebuilder:default="/mcp"
	Path URLPath `json:"path,omitempty"`
}

// SSETransport says where an sse server listens inside its pod.
type SSETransport struct {
	// port is the port that the server listens on. 16270 to 16279 are reserved for the
	// adapter, which shares the pod's network with the server.
	// +required
	Port ServerPort `json:"port,omitempty"`

	// path is the path of the server's event stream. Defaults to /sse.
	// +optional
	// +kubebuilder:default="/sse"
	Path URLPath `json:"path,omitempty"`
}

// The adapter's ports. A server shares the pod's network namespace with the adapter.
// Ports up to 16279 are reserved for later versions of the adapter.
const (
	AdapterPort      = 16270
	AdapterAdminPort = 16271
	AdapterPeerPort  = 16272
)

// ServerPort is a port that an MCP server listens on inside its pod.
//
// +kubebuilder:validation:Minimum=1
// +kubebuilder:validation:Maximum=65535
// +kubebuilder:validation:XValidation:rule="self < 16270 || self > 16279",message="port must not be one of 16270 to 16279: they are reserved for the adapter in the same pod"
type ServerPort int32

// URLPath is the path part of a URL.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:XValidation:rule="self.startsWith('/') && !self.matches('[[:space:]?#]')",message="path must start with '/' and hold no white space, '?' or '#'"
type URLPath string

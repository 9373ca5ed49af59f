package v1alpha1

// Transport says how the server in the image speaks MCP. The block that is named
// like the type configures it, and no other block may be set.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'stdio' || !has(self.stdio)",message="transport.stdio must be left out unless transport.type is stdio",fieldPath=".stdio",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.type == 'streamable-http' || !has(self.http)",message="transport.http must be left out unless transport.type is streamable-http",fieldPath=".http",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.type == 'sse' || !has(self.sse)",message="transport.sse must be left out unless transport.type is sse",fieldPath=".sse",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.type != 'streamable-http' || has(self.http)",message="transport.http.port must be set when transport.type is streamable-http: it is the port that the server listens on",fieldPath=".http",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="self.type != 'sse' || has(self.sse)",message="transport.sse.port must be set when transport.type is sse: it is the port that the server listens on",fieldPath=".sse",reason=FieldValueRequired
type Transport struct {
	// type is what the server itself speaks. stdio: JSON-RPC messages on standard
	// input and output. streamable-http: one HTTP endpoint. sse: the HTTP+SSE
	// transport of protocol revision 2024-11-05. Clients always find Streamable
	// HTTP at the server's URL, whatever the type.
	// +required
	Type TransportType `json:"type,omitempty"`

	// stdio configures a stdio server. It may be left out.
	// +optional
	Stdio *StdioTransport `json:"stdio,omitempty"`

	// http says where a streamable-http server listens inside its pod.
	// +optional
	HTTP *HTTPTransport `json:"http,omitempty"`

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
	// framing says how messages are told apart. Newline, which is the default:
	// one message a line, as the protocol has it. ContentLength: a
	// Content-Length header before each message, as some servers do it.
	// +optional
	// +kubebuilder:default=Newline
	Framing StdioFraming `json:"framing,omitempty"`

	// era pins the generation of the protocol that the server speaks. Clients of
	// both are served in any case: those that the server does not speak itself, by
	// translation. Auto, which is the default, finds it out. Legacy: the server
	// has sessions (revisions up to 2025-11-25, which open with initialize) and is
	// never asked for anything else; clients of 2026-07-28 are translated. Modern:
	// the server is stateless (2026-07-28) and is never asked to initialize;
	// clients with sessions are translated.
	// +optional
	// +kubebuilder:default=Auto
	Era ProtocolEra `json:"era,omitempty"`
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

// ProtocolEra is a generation of the protocol.
//
// +kubebuilder:validation:Enum=Auto;Legacy;Modern
type ProtocolEra string

const (
	// EraAuto finds out which generation the server speaks.
	EraAuto ProtocolEra = "Auto"
	// EraLegacy is every revision up to 2025-11-25, which have sessions.
	EraLegacy ProtocolEra = "Legacy"
	// EraModern is every revision from 2026-07-28 on, which have none.
	EraModern ProtocolEra = "Modern"
)

// HTTPTransport says where a streamable-http server listens inside its pod.
type HTTPTransport struct {
	// port is the port that the server listens on. 16270 and 16271 belong to the
	// adapter, which shares the pod's network with the server.
	// +required
	Port ServerPort `json:"port,omitempty"`

	// path is the path of the server's MCP endpoint; /mcp when left out.
	// +optional
	// +kubebuilder:default="/mcp"
	Path URLPath `json:"path,omitempty"`
}

// SSETransport says where an sse server listens inside its pod.
type SSETransport struct {
	// port is the port that the server listens on. 16270 and 16271 belong to the
	// adapter, which shares the pod's network with the server.
	// +required
	Port ServerPort `json:"port,omitempty"`

	// path is the path of the server's event stream; /sse when left out.
	// +optional
	// +kubebuilder:default="/sse"
	Path URLPath `json:"path,omitempty"`
}

// The adapter's ports. A server shares the pod's network namespace with the
// adapter and can use neither.
const (
	AdapterPort      = 16270
	AdapterAdminPort = 16271
)

// ServerPort is a port that an MCP server listens on inside its pod.
//
// +kubebuilder:validation:Minimum=1
// +kubebuilder:validation:Maximum=65535
// +kubebuilder:validation:XValidation:rule="self != 16270 && self != 16271",message="port must not be 16270 or 16271: the adapter in the same pod uses them"
type ServerPort int32

// URLPath is the path part of a URL.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:XValidation:rule="self.startsWith('/') && !self.matches('[[:space:]?#]')",message="path must start with '/' and hold no white space, '?' or '#'"
type URLPath string

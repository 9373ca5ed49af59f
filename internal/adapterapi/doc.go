// Package adapterapi is the contract between the manager and adapters, which may be two
// minor versions apart: paths, headers, JSON, reasons, and how each side proves itself
// to the other.
//
// The two share the keys of a server. A key never travels, and is never used itself:
// every use has a key of its own, derived from it by HKDF with the use as its label. The
// manager proves itself by a MAC with a time stamp, bound to the UID of the pod that it
// means, so that a process that listens at the pod's address learns nothing that opens
// another door. The adapter's answers carry a MAC over the request's nonce and all that
// the answer says, so that such a process cannot answer in the adapter's place.
package adapterapi

// The paths of the admin port.
const (
	PathLive     = "/livez"
	PathReady    = "/readyz"
	PathCatalog  = "/catalog"
	PathSettings = "/settings"
	PathAccess   = "/access"
	PathMetrics  = "/metrics"
	PathSessions = "/sessions"
	PathPeers    = "/peers"
)

// SessionsWithSpares is the value of HeaderSessions in a request. Managers that do not send it read no spares.
const SessionsWithSpares = "spares"

// UnreadyAnswers is how many times in a row the adapter tells the kubelet that a server which was
// ready is not ready before the kubelet takes the endpoint away. One stall of a busy node must not.
const UnreadyAnswers = 2

// Headers of requests and answers.
const (
	// HeaderProof carries the manager's proof at the admin port.
	HeaderProof = "Slipway-Proof"
	// HeaderBody carries the manager's MAC over the body of a request with a proof.
	HeaderBody = "Slipway-Body"
	// HeaderProbe carries the manager's proof at the client port, where it finds a session
	// slot of its own. The adapter never passes it on.
	HeaderProbe = "Slipway-Probe"
	// HeaderAnswer carries the adapter's MAC over its answer to a request with a proof.
	HeaderAnswer = "Slipway-Answer"
	// HeaderFailed is in the answer of the client port to the manager's probe if the adapter cannot
	// serve it because the server fails, and not because a limit is reached.
	HeaderFailed = "Slipway-Failed"
	// HeaderSessions carries the instance's Sessions with a catalog, outside its ETag: they
	// change all the time. A manager that sends it with the value SessionsWithSpares gets the spares, too.
	HeaderSessions = "Slipway-Sessions"
	// HeaderProcesses carries the instance's Processes with a catalog, outside its ETag. The
	// adapter sends it only with the answer to a request that has the header, too: a manager that
	// does not know it would take the answer's MAC for wrong.
	HeaderProcesses = "Slipway-Processes"
	// HeaderKeys carries the instance's KeyUse with a catalog, as HeaderProcesses carries its Processes.
	HeaderKeys = "Slipway-Keys"
	// HeaderPeers carries the generation of the list of pods in a request for the catalog. It renews the list.
	HeaderPeers = "Slipway-Peers"
)

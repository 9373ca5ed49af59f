package adapterapi

import "encoding/json"

// Report is the body of a catalog's answer.
type Report struct {
	Ready bool `json:"ready"`
	// Reason and Error say why not, or what went wrong last. Error is for people.
	Reason  Reason          `json:"reason,omitempty"`
	Error   string          `json:"error,omitempty"`
	Catalog json.RawMessage `json:"catalog,omitempty"` // of package mcpprobe
	// Settings are those in effect; nil of an adapter that takes none.
	Settings *SettingsState `json:"settings,omitempty"`
	// Access is the access document in effect; nil of an adapter that takes none.
	Access *AccessState `json:"access,omitempty"`
	// Peers is the list of pods in effect; nil of an adapter that takes none.
	Peers *AccessState `json:"peers,omitempty"`
	// Failures is how many servers in a row the adapter has started to read their catalog without
	// getting an answer.
	Failures int64 `json:"failures,omitempty"`
}

// Reason is why a server is not ready, for programs. A manager takes one that it does not
// know for Broken.
type Reason string

// The reasons.
const (
	// Starting: nothing is known yet.
	Starting Reason = "Starting"
	// Unstartable: the server could not be started, or no process listens at its address.
	Unstartable Reason = "Unstartable"
	// Exited: the server ended by itself.
	Exited Reason = "Exited"
	// Silent: the server runs and does not answer.
	Silent Reason = "Silent"
	// Unauthorized: the server wants credentials that the adapter does not have.
	Unauthorized Reason = "Unauthorized"
	// TooLarge: the server lists more than is taken from it. It is ready.
	TooLarge Reason = "TooLarge"
	// Busy: the server asks for patience. It says nothing of what it does otherwise.
	Busy Reason = "Busy"
	// NoRoom: there is no room for another process. It says nothing of the server.
	NoRoom Reason = "NoRoom"
	// Broken: the server responds, but not with valid MCP.
	Broken Reason = "Broken"
)

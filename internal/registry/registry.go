// Package registry reads what a container image says of itself from its registry.
package registry

import "github.com/google/go-containerregistry/pkg/name"

// Image is what an image says of itself. It is kept in a ControllerRevision, so
// its members are never renamed.
type Image struct {
	// Reference is what a pod must name to run exactly this image: repository@digest.
	Reference string `json:"reference"`
	// Digest is that of the manifest or index that the reference pointed to.
	Digest string `json:"digest"`
	// Entrypoint and Cmd are the program and its arguments, as the image has them.
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	// User is the user that the image names: a name or a number, with or without a group.
	User string `json:"user,omitempty"`
	// Home is the value of HOME in the image's environment.
	Home string `json:"home,omitempty"`
}

// Kind says what an error means to the caller.
type Kind string

// The kinds of errors.
const (
	// Invalid: the text is no image reference.
	Invalid Kind = "Invalid"
	// Refused: the registry has an address that is never dialed.
	Refused Kind = "Refused"
	// NotFound: the registry has no such image.
	NotFound Kind = "NotFound"
	// Unauthorized: the registry wants other credentials.
	Unauthorized Kind = "Unauthorized"
	// Unavailable: the registry could not be asked.
	Unavailable Kind = "Unavailable"
)

// Error is why an image could not be resolved. Its text is safe to show: it holds
// no credentials.
type Error struct {
	Kind      Kind
	Reference string
	Detail    string
	// Silent says that the registry did not answer at all, so that it would not answer for
	// another image either.
	Silent bool
}

// Error says what went wrong, with the image's name.
func (e *Error) Error() string { return "resolve image " + e.Reference + ": " + e.Detail }

// Host is the registry that an image reference names; empty if it is none.
func Host(reference string) string {
	parsed, err := name.ParseReference(reference)
	if err != nil {
		return ""
	}
	return parsed.Context().RegistryStr()
}

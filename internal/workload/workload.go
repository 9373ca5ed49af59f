// Package workload builds the objects that an MCPServer becomes. Builders are pure:
// the same input gives the same object, and nothing is read or written.
package workload

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/registry"
)

// Adapter is the adapter that this manager gives to pods.
type Adapter struct {
	Image      string
	PullPolicy corev1.PullPolicy
	Version    string
}

// UserPolicy says who chooses the user of a container whose spec names none. Its zero value
// is UserFixed.
type UserPolicy string

const (
	// UserFixed has the manager choose.
	UserFixed UserPolicy = "Fixed"
	// UserAssigned leaves it to the cluster: OpenShift assigns each namespace a range of
	// users, and refuses pods that name another one.
	UserAssigned UserPolicy = "Assigned"
)

// Input is what a pod template is rendered from.
type Input struct {
	Server *mcpv1alpha1.MCPServer
	// Image is what the server's image says of itself; nil if its registry could
	// not be asked.
	Image   *registry.Image
	Adapter Adapter
	// References is a digest of the Secrets and ConfigMaps that the spec refers
	// to; empty when it refers to none, or when their changes are to be ignored.
	References string
	// ClusterDomain is what the names of Services end with, such as cluster.local.
	ClusterDomain string
	// Users says who chooses the user of a container whose spec names none.
	Users UserPolicy
	// Defaults are for what the spec leaves out.
	Defaults Defaults
}

// Rendered is a pod template as it was once rendered, with what it was rendered
// from. It is the data of a ControllerRevision, so its members are never renamed.
type Rendered struct {
	// Inputs are what the template was rendered from.
	Inputs Inputs `json:"inputs"`
	// ImageName is the image as the spec named it.
	ImageName string `json:"imageName"`
	// Image is what the image was resolved to; nil if it could not be.
	Image *registry.Image `json:"image,omitempty"`
	// AdapterVersion is that of the adapter in the template.
	AdapterVersion string `json:"adapterVersion"`
	// Defaults are the fields that the spec left out and the manager's configuration filled.
	Defaults []string `json:"defaults,omitempty"`
	// Template is an apply configuration of a PodTemplateSpec.
	Template json.RawMessage `json:"template"`
}

// Catalog is what a server offers, as it is kept for people and programs to read.
type Catalog struct {
	Digest string
	// JSON is the catalog, small enough for a ConfigMap.
	JSON []byte
	// Trimmed says what had to be left out of JSON; empty when it is whole.
	Trimmed string
}

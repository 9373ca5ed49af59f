package workload

import (
	"fmt"
	"slices"
	"strings"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/registry"
)

// CommandUnknownError says that nobody names the program of a stdio server. Its text
// tells the user what to do.
type CommandUnknownError struct {
	Image string
	// Resolved is true when the image was read and names no program, false when it
	// could not be read.
	Resolved bool
}

// Error says what is missing, and what to do.
func (e *CommandUnknownError) Error() string {
	why := "could not be read"
	if e.Resolved {
		why = "names no program to run"
	}
	return fmt.Sprintf("spec.command was left out and image %s %s: "+
		`set spec.command to the server's program, such as ["node", "dist/index.js"]`, e.Image, why)
}

// NeedsImage says whether a pod template can be made only when the image is known: a
// stdio server is started by the launcher, which must be told what to start. A server
// that speaks HTTP is started by its container, whatever the image runs.
func NeedsImage(server *mcpv1alpha1.MCPServer) bool {
	return isStdio(server) && len(server.Spec.Command) == 0
}

func isStdio(server *mcpv1alpha1.MCPServer) bool {
	return server.Spec.Transport.Type == mcpv1alpha1.TransportStdio
}

// Command is the program, with its arguments, that runs as the server: by the rules
// that Kubernetes has for every container. It is nil if nobody names one, or only an
// image that could not be read.
func Command(server *mcpv1alpha1.MCPServer, image *registry.Image) []string {
	return command(server, image, func(word string) string { return word })
}

// launched is Command as a container spec must have it. Kubernetes replaces $(NAME) in
// what a user writes, and leaves an image's own words alone.
func launched(server *mcpv1alpha1.MCPServer, image *registry.Image) ([]string, error) {
	words := command(server, image, literal)
	if len(words) == 0 {
		return nil, &CommandUnknownError{Image: server.Spec.Image, Resolved: image != nil}
	}
	return words, nil
}

func command(server *mcpv1alpha1.MCPServer, image *registry.Image, ofImage func(string) string) []string {
	spec := &server.Spec
	if len(spec.Command) > 0 {
		return slices.Concat(spec.Command, spec.Args)
	}
	if image == nil {
		return nil
	}
	var words []string
	for _, word := range image.Entrypoint {
		words = append(words, ofImage(word))
	}
	if len(spec.Args) > 0 {
		return append(words, spec.Args...)
	}
	for _, word := range image.Cmd {
		words = append(words, ofImage(word))
	}
	return words
}

// literal writes a text so that Kubernetes, which replaces $(NAME) in commands and
// arguments, takes it as it is.
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

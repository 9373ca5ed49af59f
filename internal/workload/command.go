package workload

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/reason"
	"github.com/slipway-mcp/slipway/internal/registry"
)

// CommandUnknownError says that neither the spec nor the image names the program of a
// stdio server. Its text tells the user what to do.
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
	return fmt.Sprintf("spec.command was left out and image %s %s: %s", e.Image, why, reason.SetCommand)
}

// NeedsImage says whether a pod template can be made only when the image is known: the
// launcher must be told what to start for each session of a stdio server. A server that
// speaks HTTP can also be started by its container, whatever the image runs.
func NeedsImage(server *mcpv1alpha1.MCPServer) bool {
	return isStdio(server) && len(server.Spec.Command) == 0
}

func isStdio(server *mcpv1alpha1.MCPServer) bool {
	return server.Spec.Transport.Type == mcpv1alpha1.TransportStdio
}

// Command is the program, with its arguments, that runs as the server, by the rules that
// Kubernetes has for every container. It is nil if neither the spec nor the image names
// one, or if the image could not be read.
func Command(server *mcpv1alpha1.MCPServer, image *registry.Image) []string {
	return command(server, image, func(word string) string { return word })
}

// usesLauncher says whether the launcher is the first process of the server's container.
// An HTTP server can do without, and does so in three cases: its command is not known; it is
// the image's own, which pins the image to its digest, and nodes are not to pull the image,
// so that they may know it by its tag only; or the command wants to be PID 1 itself.
func usesLauncher(in Input) bool {
	if isStdio(in.Server) {
		return true
	}
	if len(in.Server.Spec.Command) == 0 && in.Server.Spec.ImagePullPolicy == corev1.PullNever {
		return false
	}
	words := Command(in.Server, in.Image)
	return len(words) > 0 && !slices.Contains(inits, path.Base(words[0]))
}

// inits are programs that pass signals on and collect dead processes themselves. Some of
// them, such as that of s6-overlay, which is /init, refuse to run unless they are PID 1.
var inits = []string{"init", "s6-svscan", "systemd", "tini", "tini-static", "dumb-init", "docker-init", "catatonit"}

// launched is the launcher's command: it starts a stdio server for each session, and an HTTP
// server once. Kubernetes replaces $(NAME) in the words of a user, and must leave the image's
// own words alone.
func launched(in Input) ([]string, error) {
	words := command(in.Server, in.Image, literal)
	switch {
	case len(words) == 0:
		return nil, &CommandUnknownError{Image: in.Server.Spec.Image, Resolved: in.Image != nil}
	case isStdio(in.Server):
		return slices.Concat([]string{launcherPath, "--socket=" + socketPath, "--"}, words), nil
	default:
		return slices.Concat([]string{launcherPath, "run", "--"}, words), nil
	}
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

package child

import (
	"github.com/slipway-mcp/slipway/internal/diagnosis"
	"github.com/slipway-mcp/slipway/internal/launcher"
)

// ExitError says how a server's process ended, and what it wrote to standard error last. The status of
// an MCPServer shows it. Clients get what fault.ForClients makes of it.
type ExitError struct{ launcher.Exit }

// Brief returns the error without what the process wrote.
func (e *ExitError) Brief() string { return "the server's process ended: " + e.String() }

func (e *ExitError) Error() string {
	text := e.Brief()
	if lines := diagnosis.Lines(e.StderrHead, e.Stderr); lines != "" {
		text += "; it wrote on standard error: " + lines // the manager looks for "on standard error: "
	}
	return text
}

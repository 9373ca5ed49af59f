package child

import (
	"errors"

	"github.com/slipway-mcp/slipway/internal/diagnosis"
	"github.com/slipway-mcp/slipway/internal/launcher"
)

// ExitError says how a server's process ended, and what it wrote to standard error about
// that. The status of an MCPServer shows all of it. Clients get only what ForClients
// returns.
type ExitError struct{ launcher.Exit }

// Brief is the error without what the process wrote.
func (e *ExitError) Brief() string { return "the server's process ended: " + e.String() }

func (e *ExitError) Error() string {
	text := e.Brief()
	if lines := diagnosis.Lines(e.StderrHead, e.Stderr); lines != "" {
		text += "; it wrote on standard error: " + lines // the manager looks for "on standard error: "
	}
	return text
}

// ForClients returns the error as clients may read it: how the process ended, and nothing
// of what it wrote. Stack traces hold tokens and connection strings, and a client can
// often make a process crash. The cause stays for errors.As.
func ForClients(reason error) error {
	if _, ok := errors.AsType[*discreetError](reason); ok {
		return reason
	}
	if exit, ok := errors.AsType[*ExitError](reason); ok {
		return exit.InWords(exit.Brief())
	}
	return reason
}

// InWords returns the error with another text for clients.
func (e *ExitError) InWords(words string) error { return &discreetError{words, e} }

// discreetError is an ExitError whose text holds no secret.
type discreetError struct {
	words string
	exit  *ExitError
}

func (d *discreetError) Error() string { return d.words }

// Brief is for logs, which already have the standard error of the process.
func (d *discreetError) Brief() string { return d.words }

func (d *discreetError) Unwrap() error { return d.exit }

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/slipway-mcp/slipway/internal/text"
)

// The exit codes are those of the official MCP Inspector, so that scripts can use either.
const (
	exitOK          = 0
	exitUnexpected  = 1 // wrong usage, or something that the plugin does not expect
	exitCredentials = 3 // the cluster or the server wants credentials or rights that the caller lacks
	exitUnreachable = 4 // the cluster, Slipway or the server is not there, or not ready
	exitTool        = 5 // the tool failed, or does not exist; or a scenario of the conformance suite failed
)

// noCluster is where the library looks for an API server if no kubeconfig names one.
const noCluster = "localhost:8080"

// errorBytes bounds what the plugin shows of an error: its text may come from a server.
const errorBytes = 4 << 10

// failure is an error with an exit code, and with what the user can do.
type failure struct {
	code int
	err  error
	next string // a sentence; may be empty
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// fail is a failure whose text is a sentence of our own.
func fail(code int, next, format string, args ...any) error {
	return &failure{code, fmt.Errorf(format, args...), next}
}

// explain gives an error the exit code and the advice that it lacks.
func explain(err error) *failure {
	if known, ok := errors.AsType[*failure](err); ok {
		return known
	}
	var network net.Error
	switch {
	case apierrors.IsForbidden(err):
		return &failure{exitCredentials, err, "Ask for the right that is missing: view has those to read, edit has those to call servers and to stop them."}
	case apierrors.IsUnauthorized(err):
		return &failure{exitCredentials, err, "Log in to the cluster again, as for kubectl get mcpservers."}
	case meta.IsNoMatchError(err):
		return &failure{exitUnreachable, errors.New("the cluster has no MCPServers: Slipway is not installed there"),
			"Check the context (kubectl config current-context), or install Slipway."}
	case apierrors.IsNotFound(err):
		return &failure{exitUnreachable, err, "To see all servers, run: kubectl mcp list -A"}
	case errors.As(err, &network) && strings.Contains(err.Error(), noCluster):
		return &failure{exitUnreachable, errors.New("no kubeconfig names a cluster"), "Set KUBECONFIG, or use --kubeconfig or --context."}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network):
		return &failure{exitUnreachable, err, "Check that kubectl get mcpservers works."}
	default:
		return &failure{exitUnexpected, err, ""}
	}
}

// tell writes a failure for people, or as one line of JSON.
func (f *failure) tell(w io.Writer, asJSON bool) {
	message := text.Block(f.err.Error(), errorBytes)
	if asJSON {
		_ = json.NewEncoder(w).Encode(struct {
			Error string `json:"error"`
			Next  string `json:"next,omitempty"`
			Code  int    `json:"code"`
		}{message, f.next, f.code})
		return
	}
	_, _ = fmt.Fprintf(w, "error: %s\n", message)
	if f.next != "" {
		_, _ = fmt.Fprintln(w, text.Block(f.next, errorBytes))
	}
}

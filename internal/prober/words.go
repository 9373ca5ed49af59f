package prober

import (
	"cmp"
	"errors"
	"fmt"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/text"
)

// outcomeOf says what a failed verification means, and in which words.
func outcomeOf(err error, i Instance) (Outcome, string) {
	e, ok := errors.AsType[*mcpprobe.Error](err)
	if !ok {
		return Failed, text.Line(err.Error(), maxWords)
	}
	if errors.Is(err, errMeshed) {
		return Unreachable, fmt.Sprintf("port %d of the pod accepts the manager's connection and closes it without an answer; %s", mcpv1alpha1.AdapterPort, meshAdvice())
	}
	switch e.Class {
	case mcpprobe.Unauthorized:
		return Unauthorized, fmt.Sprintf("the server answers HTTP %d: it wants credentials that the manager does not have", e.Status)
	case mcpprobe.Busy:
		if e.Failed {
			return Failed, text.Line(cmp.Or(e.Detail, "the adapter cannot get a session of the server"), maxWords)
		}
		return Full, withDetail(fmt.Sprintf("the pod answers HTTP %d: it takes no further session at the moment", e.Status), e)
	case mcpprobe.Unreachable:
		return Unreachable, withDetail(fmt.Sprintf("the manager cannot connect to port %d of the pod; "+
			"a NetworkPolicy that keeps it out is a common cause", mcpv1alpha1.AdapterPort), e)
	case mcpprobe.Timeout:
		return Failed, fmt.Sprintf("the server did not answer %s within %s", requestOf(e.Op), i.Timeout)
	default:
		return Failed, text.Block(e.Error(), maxWords)
	}
}

// meshAdvice is for users whose mesh keeps the manager out.
func meshAdvice() string {
	return fmt.Sprintf("a service mesh with strict mTLS does that to clients outside of it: exclude ports %d and %d from the mesh, see Service meshes in docs/install.md",
		mcpv1alpha1.AdapterPort, mcpv1alpha1.AdapterAdminPort)
}

func requestOf(op string) string {
	if op == "connect" || op == "" {
		return "initialize"
	}
	return op
}

func withDetail(words string, e *mcpprobe.Error) string {
	if e.Detail == "" {
		return words
	}
	return words + ": " + text.Line(e.Detail, maxWords/2)
}

// trouble says why the catalog could not be read.
func trouble(err error, i Instance) string {
	e, ok := errors.AsType[*mcpprobe.Error](err)
	if !ok {
		return "the catalog cannot be read: " + text.Line(err.Error(), maxWords/2)
	}
	switch {
	case isUnsigned(err):
		return fmt.Sprintf("the catalog cannot be read: port %d of the pod answers HTTP %d without the adapter's signature; "+
			"either another process listens there, or the adapter has not read the present key yet, or the clocks of the two nodes differ", mcpv1alpha1.AdapterAdminPort, e.Status)
	case unheard(err):
		return fmt.Sprintf("the catalog cannot be read: port %d of the pod accepts the manager's connection and closes it without an answer; %s", mcpv1alpha1.AdapterAdminPort, meshAdvice())
	case e.Class == mcpprobe.Timeout:
		return fmt.Sprintf("the catalog cannot be read: the adapter did not answer within %s", i.Timeout)
	case e.Class == mcpprobe.Unreachable:
		return withDetail(fmt.Sprintf("the catalog cannot be read: the manager cannot connect to port %d of the pod", mcpv1alpha1.AdapterAdminPort), e)
	default:
		return withDetail("the catalog cannot be read", e)
	}
}

package prober

import (
	"errors"
	"fmt"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// outcomeOf says what a failed verification means, and in which words.
func outcomeOf(err error, i Instance) (Outcome, string) {
	e, ok := errors.AsType[*mcpprobe.Error](err)
	if !ok {
		return Failed, line(err.Error(), maxWords)
	}
	switch e.Class {
	case mcpprobe.Unauthorized:
		return Unauthorized, fmt.Sprintf("the server answers HTTP %d: it wants credentials that the manager does not have", e.Status)
	case mcpprobe.Busy:
		return Full, fmt.Sprintf("the pod answers HTTP %d: it takes no further session at the moment", e.Status)
	case mcpprobe.Unreachable:
		return Unreachable, withDetail(fmt.Sprintf("the manager cannot connect to port %d of the pod; "+
			"a NetworkPolicy that keeps it out is a common cause", mcpv1alpha1.AdapterPort), e)
	case mcpprobe.Timeout:
		return Failed, fmt.Sprintf("the server did not answer %s within %s", requestOf(e.Op), i.Timeout)
	default:
		return Failed, text(e.Error(), maxWords)
	}
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
	return words + ": " + line(e.Detail, maxWords/2)
}

// trouble says why the catalogue could not be read.
func trouble(err error, i Instance) string {
	e, ok := errors.AsType[*mcpprobe.Error](err)
	if !ok {
		return "the catalogue cannot be read: " + line(err.Error(), maxWords/2)
	}
	switch {
	case isUnsigned(err):
		return fmt.Sprintf("the catalogue cannot be read: port %d of the pod answers HTTP %d without the adapter's signature; "+
			"either another process listens there, or the adapter has not read the present key yet, or the clocks of the two nodes differ", mcpv1alpha1.AdapterAdminPort, e.Status)
	case e.Class == mcpprobe.Timeout:
		return fmt.Sprintf("the catalogue cannot be read: the adapter did not answer within %s", i.Timeout)
	case e.Class == mcpprobe.Unreachable:
		return withDetail(fmt.Sprintf("the catalogue cannot be read: the manager cannot connect to port %d of the pod", mcpv1alpha1.AdapterAdminPort), e)
	default:
		return withDetail("the catalogue cannot be read", e)
	}
}

package remote

import (
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote/remotetest"
)

// Short names for tests.
const (
	headerSession  = front.HeaderSession
	headerRevision = front.HeaderRevision
	typeJSON       = front.TypeJSON
	typeEvents     = front.TypeEvents
	ping           = remotetest.Ping
	initializeBody = remotetest.Initialize
)

type (
	backend = remotetest.Backend
	input   = remotetest.Input
)

var (
	newBackend       = remotetest.NewBackend
	testServer       = remotetest.NewServer
	streamableServer = remotetest.NewStreamable
	connect          = remotetest.Connect
	script           = remotetest.Script
	ok               = remotetest.OK
	text             = remotetest.Text
	said             = remotetest.Said
	revisions        = remotetest.Revisions
)

func within[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	return remotetest.Within(t, what, from)
}

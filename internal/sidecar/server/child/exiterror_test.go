package child

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// A process says first what is wrong and then writes more than is kept.
func TestExitSaysWhy(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testOptions, "sh", "-c",
		`echo 'flag provided but not defined: -nope' >&2; i=0; while [ $i -lt 500 ]; do echo "  -flag-$i: a thing that can be set" >&2; i=$((i+1)); done; exit 2`)
	server, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	server.Serve(func(session.Message) {}, func(err error) { ended <- err })
	err = <-ended
	const want = "the server's process ended: exit code 2; it wrote on standard error: flag provided but not defined: -nope\n  -flag-0: "
	if !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "-flag-499: a thing that can be set") {
		t.Errorf("ended with %v", err)
	}
}

func TestForClients(t *testing.T) {
	exit := &ExitError{}
	exit.Code, exit.Stderr = 3, "password=hunter2"
	for name, reason := range map[string]error{
		"itself": exit, "wrapped": fmt.Errorf("initialize: %w", exit), "twice": fault.ForClients(exit),
	} {
		got := fault.ForClients(reason)
		if got.Error() != "the server's process ended: exit code 3" {
			t.Errorf("%s: clients are told %q", name, got)
		}
		if found, ok := errors.AsType[*ExitError](got); !ok || found != exit {
			t.Errorf("%s: the cause is lost", name)
		}
	}
	if got := fault.ForClients(session.ErrEnded); !errors.Is(got, session.ErrEnded) {
		t.Errorf("another error becomes %v", got)
	}
}

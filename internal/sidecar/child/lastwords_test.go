package child

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// What a process wrote before it ended arrives, however slowly it is taken.
func TestLastWordsOfAProcessAreHeard(t *testing.T) {
	pool := newPool(t, testOptions, "sh", "-c",
		`for i in 1 2 3 4 5 6; do printf '{"jsonrpc":"2.0","method":"n","params":{"p":"%09000d"}}\n' $i; done`)
	server, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	heard, ended := 0, make(chan error, 1)
	server.Serve(func(session.Message) {
		heard++
		<-server.process.Done()
		<-time.After(exitGrace + 10*time.Millisecond) // a receiver that is behind
	}, func(err error) { ended <- err })
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "exit code 0") {
		t.Errorf("ended with %v", err)
	}
	if heard != 6 {
		t.Errorf("%d of 6 messages were heard", heard)
	}
}

// Spares that end by themselves are replaced ever more slowly.
func TestSparesThatDoNotStay(t *testing.T) {
	options := testOptions
	options.Warm = 1
	pool := newPool(t, options, "sh", "-c", "sleep 0.05; exit 1")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	pool.Run(ctx)
	if got := pool.metrics.Starts.Load(); got > 5 {
		t.Errorf("%d starts in 3 s", got)
	}
}

// Some servers write null for what they do not have.
func TestNullStandsForNothing(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":2,"result":{},"error":null}`
	pool := newPool(t, testOptions, "sh", "-c", "echo '"+answer+"'; cat")
	c := converse(t, pool)
	defer c.Close()
	if got := c.hear(); got != answer {
		t.Errorf("heard %s", got)
	}
}

// A mistake in the adapter costs one session.
func TestPanicEndsOneSession(t *testing.T) {
	pool := newPool(t, testOptions)
	server, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	server.Serve(func(session.Message) { panic(errors.New("a mistake")) }, func(err error) { ended <- err })
	if err := server.Send(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the session has not ended")
	}
	if got := pool.metrics.Panics.Load(); got != 1 {
		t.Errorf("%d panics counted", got)
	}
	eventuallyNone(t, pool)
}

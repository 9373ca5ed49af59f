package sidecar

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/test/hang"
)

// R06: a server that dies instead of answering initialize says why, at once.
func TestR06DeathDuringInitialize(t *testing.T) {
	t.Parallel()
	listener, err := listener.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, url := startAdapterOn(t, listener, func(c *config.Config) { c.Warm, c.StartTimeout = 0, time.Hour },
		"sh", "-c", "read line; echo no such database >&2; exit 3")
	c := &client{url: url, http: &http.Client{}}
	t.Cleanup(c.http.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	got, err := c.messages(ctx, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	if err != nil || len(got) != 1 {
		t.Fatalf("got %q, %v", got, err)
	}
	for _, want := range []string{`"id":0,"error"`, "exit code 3"} {
		if !strings.Contains(got[0], want) {
			t.Errorf("got %s, want %s in it", got[0], want)
		}
	}
}

// R29: what belongs to no call arrives on the GET stream.
func TestR29NotificationsArriveOnTheStream(t *testing.T) {
	t.Parallel()
	_, url := startAdapter(t, nil)
	c := mustOpen(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	stream, err := c.do(ctx, http.MethodGet, "")
	if err != nil || stream.StatusCode != http.StatusOK {
		t.Fatalf("GET: %v, %v", stream, err)
	}
	defer func() { _ = stream.Body.Close() }()
	// With two calls in flight it cannot be said to belong to either.
	question, err := c.post(ctx, call("q", "ask", `"text":"wait"`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = question.Body.Close() }()
	c.wantAnswer(t, "changed", "done")
	lines := bufio.NewReader(stream.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the notification did not come: %v", err)
		}
		if strings.Contains(line, "notifications/tools/list_changed") {
			break
		}
	}
}

// R49: a thousand calls in one session at the same time, and each gets its answer. The
// server asks a question for each of them, and none is answered before all are asked.
func TestR49ThousandCallsInFlight(t *testing.T) {
	t.Parallel()
	const calls = 1000
	_, url := startAdapter(t, nil)
	c := mustOpen(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	asked := make(chan struct{}, calls)
	hear := func(message string) bool {
		if strings.Contains(message, `"method":"elicitation/create"`) {
			asked <- struct{}{}
			return true
		}
		return false
	}
	// Questions that cannot be told to belong to a call come on the GET stream.
	general, err := c.do(ctx, http.MethodGet, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = general.Body.Close() }()
	go func() { _ = eachMessage(general.Body, func(message string) { hear(message) }) }()

	var running sync.WaitGroup
	var answered sync.Map // by which answer to its question each call was answered
	for i := range calls {
		running.Go(func() {
			response, err := c.post(ctx, call(i, "ask", `"text":"go on?"`))
			if err != nil {
				t.Errorf("call %d: %v", i, err)
				return
			}
			defer func() { _ = response.Body.Close() }()
			var got []string
			err = eachMessage(response.Body, func(message string) {
				if !hear(message) {
					got = append(got, message)
				}
			})
			if err != nil || len(got) != 1 || !strings.Contains(got[0], fmt.Sprintf(`"id":%d,"result"`, i)) {
				t.Errorf("call %d: got %.300q, %v", i, got, err)
				return
			}
			_, text, _ := strings.Cut(got[0], `"text":`)
			if other, twice := answered.Swap(text, i); twice {
				t.Errorf("calls %d and %v are both answered by %.300s", i, other, text)
			}
		})
	}
	for arrived := range calls {
		select {
		case <-asked:
		case <-ctx.Done():
			running.Wait() // its calls end with the context
			t.Fatalf("%d calls have reached the server", arrived)
		}
	}
	for i := range calls {
		running.Go(func() {
			response, err := c.post(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"action":"accept"}}`, i+1))
			if err != nil {
				t.Errorf("answer %d: %v", i+1, err)
				return
			}
			_ = response.Body.Close()
		})
	}
	running.Wait()
}

// eachMessage reads an event stream to its end, or the one message of a JSON body.
func eachMessage(body io.Reader, take func(message string)) error {
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadString('\n')
		if text := strings.TrimPrefix(line, "data: "); strings.HasPrefix(text, "{") {
			take(strings.TrimSuffix(text, "\n"))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

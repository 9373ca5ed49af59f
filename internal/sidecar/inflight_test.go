package sidecar

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// R06: a server that dies instead of answering initialize says why, at once.
func TestR06DeathDuringInitialize(t *testing.T) {
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, url := startAdapterOn(t, listener, func(c *Config) { c.Warm, c.OpenTimeout = 0, time.Hour },
		"sh", "-c", "read line; echo no such database >&2; exit 3")
	c := &client{url: url, http: &http.Client{}}
	t.Cleanup(c.http.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(t.Context(), longWait)
	defer cancel()
	got, err := c.messages(ctx, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	if err != nil || len(got) != 1 {
		t.Fatalf("got %q, %v", got, err)
	}
	for _, want := range []string{`"id":0,"error"`, "exit code 3", "no such database"} {
		if !strings.Contains(got[0], want) {
			t.Errorf("got %s, want %s in it", got[0], want)
		}
	}
}

// R29: what belongs to no call arrives on the GET stream.
func TestR29NotificationsArriveOnTheStream(t *testing.T) {
	_, url := startAdapter(t, nil)
	c := mustOpen(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), longWait)
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
	deleted, err := c.do(ctx, http.MethodDelete, "") // the question would hold up the end
	if err != nil {
		t.Fatal(err)
	}
	_ = deleted.Body.Close()
}

// R49: a thousand calls in one session at the same time, and each gets its answer.
func TestR49ThousandCallsInFlight(t *testing.T) {
	const calls = 1000
	_, url := startAdapter(t, nil)
	c := mustOpen(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), 2*longWait)
	defer cancel()
	var sent, answered atomic.Int64
	begin := make(chan struct{})
	var running sync.WaitGroup
	for i := range calls {
		running.Go(func() {
			<-begin
			sent.Add(1)
			got, err := c.messages(ctx, call(i, "sleep", `"ms":3000`))
			if answered.Add(1) == 1 && sent.Load() != calls {
				t.Errorf("the first was answered when %d had been sent: the test shows nothing", sent.Load())
			}
			if err == nil {
				err = answers(fmt.Sprintf(`"id":%d,`, i), "slept")(got)
			}
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	close(begin)
	running.Wait()
}

package mcpprobe

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// inBubble connects a scripted process to a probe over pipes that take part in the
// bubble's time.
func inBubble(run func(stdin io.ReadCloser, stdout io.WriteCloser)) Target {
	stdinReader, stdinWriter := io.Pipe()
	stdoutReader, stdoutWriter := io.Pipe()
	go func() {
		run(stdinReader, stdoutWriter)
		_ = stdinReader.Close()
		_ = stdoutWriter.Close()
	}()
	return Pipes(stdoutReader, stdinWriter)
}

func silent(stdin io.ReadCloser, _ io.WriteCloser) { _, _ = io.Copy(io.Discard, stdin) }

func TestS03JunkOnStandardOutputIsSkippedAndCounted(t *testing.T) {
	noise := "\ufeffstarting up\n\n" +
		`{"level":"info","msg":"a log line in JSON"}` + "\n" +
		`{"jsonrpc":"2.0","id":` + "\n" +
		"Content-Length: 12\r\n" +
		`{"jsonrpc":"2.0","error":{"code":-32700,"message":"about nothing"},"id":null}` + "\n" +
		`{"jsonrpc":"2.0","id":77,"error":{"code":"text","message":"odd"}}` + "\n" +
		"[1,\n" + strings.Repeat("x", 16<<20) + "\n"
	s := script{}
	target := process(t, func(stdin io.ReadCloser, stdout io.WriteCloser) {
		_, _ = io.WriteString(stdout, noise)
		s.run(stdin, stdout)
	})
	var longest int
	session, err := Connect(withPatience(t), target, Options{Junk: func(line []byte) { longest = max(longest, len(line)) }})
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	defer session.Close()
	catalog, err := session.Catalog(withPatience(t))
	if err != nil {
		t.Fatalf("Catalog: %v", err)
	}
	if toolNames(catalog) != "a" || session.Junk() != 6 {
		t.Errorf("got tools %q and %d lines of junk, want a and 6", toolNames(catalog), session.Junk())
	}
	if longest > junkBytes {
		t.Errorf("got junk of %d bytes, want it cut at %d", longest, junkBytes)
	}
}

// However the output is cut into reads, only junk is cut short.
func TestS03ShortJunk(t *testing.T) {
	long := strings.Repeat("j", 3*junkBytes)
	input := "  {\"a\":1}\n\n" + long + "\n [" + long + "]\n\ufeff{}\nend" + long
	want := "  {\"a\":1}\n\n" + long[:junkBytes] + "\n [" + long + "]\n\ufeff{}\nend" + long[:junkBytes-3]
	for name, source := range map[string]io.Reader{
		"at once":      strings.NewReader(input),
		"by the byte":  iotest.OneByteReader(strings.NewReader(input)),
		"in halves":    iotest.HalfReader(strings.NewReader(input)),
		"end with EOF": iotest.DataErrReader(strings.NewReader(input)),
	} {
		got, err := io.ReadAll(&shortJunk{source: source})
		if err != nil || string(got) != want {
			t.Errorf("%s: got %d bytes (%v), want %d", name, len(got), err, len(want))
		}
	}
}

func TestJ12BatchFromAProcess(t *testing.T) {
	target := process(t, script{
		methodTools: func(c call) string {
			return `[{"jsonrpc":"2.0","method":"notifications/tools/list_changed"},` + c.result(`{"tools":[{"name":"batched"}]}`) + `]`
		},
	}.run)
	catalog, err := Probe(withPatience(t), target, Options{})
	if err != nil || toolNames(catalog) != "batched" {
		t.Errorf("got %v, %v", catalog, err)
	}
}

func TestB2SilentOnDiscoverFallsBackToInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := ""
		target := inBubble(script{
			methodDiscover: func(c call) string {
				late = c.result(`{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
				return ""
			},
			methodInitialize: func(c call) string { return late + "\n" + c.result(scriptedOpening) },
		}.run)
		start := time.Now()
		catalog, err := Probe(t.Context(), target, Options{DiscoverTimeout: 3 * time.Second})
		if err != nil {
			t.Fatalf("Probe: %v", err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %v, want the time of discover", took)
		}
		if catalog.Server.ProtocolVersion != versionLegacy || toolNames(catalog) != "a" {
			t.Errorf("got %+v", catalog)
		}
	})
}

func TestDeadlineOnAProcess(t *testing.T) {
	for name, test := range map[string]struct {
		run  func(stdin io.ReadCloser, stdout io.WriteCloser)
		want Class
	}{
		"answers nothing":        {silent, Timeout},
		"hangs in initialize":    {script{methodInitialize: func(call) string { return "" }}.run, Timeout},
		"hangs in tools/list":    {script{methodTools: func(call) string { return "" }}.run, Timeout},
		"J-05 answers wrong ids": {script{methodTools: func(call) string { return `{"jsonrpc":"2.0","id":999,"result":{"tools":[]}}` }}.run, Protocol},
		"J-02 id of other type":  {script{methodTools: func(c call) string { return strings.Replace(c.result(`{}`), `"id":`, `"id":"x`, 1) }}.run, Protocol},
		"J-01 broken JSON":       {script{methodTools: func(c call) string { return c.result(`{"tools":[}`) }}.run, Protocol},
		"sends back its input":   {func(stdin io.ReadCloser, stdout io.WriteCloser) { _, _ = io.Copy(stdout, stdin) }, Protocol},
		"text only":              {script{methodTools: func(call) string { return "panic: at the disco" }}.run, Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				start := time.Now()
				_, err := Probe(ctx, inBubble(test.run), Options{DiscoverTimeout: time.Second})
				wantClass(t, err, test.want)
				if took := time.Since(start); took > 5*time.Second+closeTimeout {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

func TestDeadlineOnAProcessThatDoesNotEvenRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stdinReader, stdinWriter := io.Pipe()
		stdoutReader, stdoutWriter := io.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := Probe(ctx, Pipes(stdoutReader, stdinWriter), Options{})
		wantClass(t, err, Timeout)
		_ = stdinReader.Close()
		_ = stdoutWriter.Close()
	})
}

func TestProcessDiesWhileItIsProbed(t *testing.T) {
	for _, method := range []string{methodDiscover, methodInitialize, methodTools} {
		t.Run(method, func(t *testing.T) {
			target := process(t, func(stdin io.ReadCloser, stdout io.WriteCloser) {
				s := script{method: func(call) string { _ = stdout.Close(); return "" }}
				s.run(stdin, stdout)
			})
			_, err := Probe(withPatience(t), target, Options{})
			wantClass(t, err, Closed)
		})
	}
}

func TestPingTimesOutOnAHungProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Bool
		target := inBubble(script{methodPing: func(c call) string {
			if hung.Load() {
				return ""
			}
			return c.fail(-32601)
		}}.run)
		session, err := Connect(t.Context(), target, Options{})
		if err != nil {
			t.Fatalf("Connect: %v", err)
		}
		defer session.Close()
		if err := session.Ping(t.Context()); err != nil {
			t.Errorf("Ping: %v, want an error of the server to count as life", err)
		}
		hung.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantClass(t, session.Ping(ctx), Timeout)
		hung.Store(false)
		if _, err := session.Catalog(t.Context()); err != nil {
			t.Errorf("Catalog: %v", err)
		}
	})
}

func TestU02LateAnswersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := ""
		target := inBubble(script{methodTools: func(c call) string {
			if late == "" {
				late = c.result(`{"tools":[{"name":"late"}]}`)
				return ""
			}
			return late + "\n" + c.result(`{"tools":[{"name":"current"}]}`)
		}}.run)
		session, err := Connect(t.Context(), target, Options{})
		if err != nil {
			t.Fatalf("Connect: %v", err)
		}
		defer session.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = session.Catalog(ctx)
		wantClass(t, err, Timeout)
		catalog, err := session.Catalog(t.Context())
		if err != nil || toolNames(catalog) != "current" {
			t.Errorf("got %v, %v", catalog, err)
		}
	})
}

func TestChangedIsCoalesced(t *testing.T) {
	const floods = 100_000
	target := process(t, script{methodPing: func(c call) string {
		return strings.Repeat(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`+"\n", floods) + c.result(`{}`)
	}}.run)
	session, err := Connect(withPatience(t), target, Options{})
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	defer session.Close()
	if err := session.Ping(withPatience(t)); err != nil {
		t.Fatalf("Ping: %v", err)
	}
	<-session.Changed()
	select {
	case <-session.Changed():
		t.Error("Changed fired twice for changes of before")
	default:
	}
}

// A server that asks and never reads the answers must not make us pile them up.
func TestRequestsInHandAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		target := inBubble(func(stdin io.ReadCloser, stdout io.WriteCloser) {
			lines := bufio.NewReader(stdin)
			for _, answer := range []string{call{ID: []byte("1")}.result(scriptedOpening) + "\n", ""} {
				_, _ = lines.ReadString('\n') // initialize, and that it is done
				_, _ = io.WriteString(stdout, answer)
			}
			for n := 0; ; n++ {
				if _, err := fmt.Fprintf(stdout, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", n); err != nil {
					return
				}
				asked.Add(1)
			}
		})
		session, err := Connect(t.Context(), target, Options{SkipDiscover: true})
		if err != nil {
			t.Fatalf("Connect: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = session.Catalog(ctx)
		wantClass(t, err, Timeout)
		// Beyond those in hand there are only those that stand in the read buffer.
		if asked := asked.Load(); asked < requestsInHand || asked > 500 {
			t.Errorf("the server could ask %d times without reading an answer", asked)
		}
		_ = target.reader.(io.Closer).Close()
		session.Close()
	})
}

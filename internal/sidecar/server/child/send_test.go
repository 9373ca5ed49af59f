package child

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// R09: a process dies with a message half written to it. The sender gets an error without
// waiting for a deadline, even if another process still holds the dead one's input.
func TestR09SendEndsWithTheProcess(t *testing.T) {
	for name, script := range map[string]string{
		"alone":             `echo '{"jsonrpc":"2.0","method":"ready"}'; exec sleep 1000`,
		"others hold input": `sleep 1000 <&0 & setsid sleep 1000 <&0 & echo '{"jsonrpc":"2.0","method":"ready"}'; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, testOptions, "sh", "-c", script)
			c := converse(t, pool)
			c.hear()
			const writers = 3 // one writes, the others wait for it
			returned := make(chan error, writers)
			for range writers {
				go func() { returned <- c.Send(t.Context(), session.Message{Bytes: []byte(strings.Repeat("x", 4<<20))}) }()
			}
			g := gomega.NewWithT(t)
			g.Eventually(func() bool { // one is writing, to a pipe that is too small
				return len(c.writing) == 1
			}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
			g.Consistently(returned).WithTimeout(50 * time.Millisecond).ShouldNot(gomega.Receive())
			c.process.Stop(0)
			for range writers {
				var err error
				g.Eventually(returned).WithTimeout(hang.Guard).Should(gomega.Receive(&err))
				if err == nil {
					t.Error("a message that the process did not read was sent")
				}
			}
			if reason := c.end().Error(); !strings.Contains(reason, "signal 9") {
				t.Errorf("ended with %s", reason)
			}
			eventuallyNone(t, pool)
		})
	}
}

// A ping of a server that writes before it reads is answered without the adapter's reader
// waiting behind a large request: else the reader waits for the writer, the writer for the
// server, and the server for the reader.
func TestPingBehindALargeRequest(t *testing.T) {
	t.Parallel()
	options := testOptions
	options.SendTimeout = 20 * time.Second
	pool := newPool(t, options, "sh", "-c", `head -c 1 >/dev/null
		echo '{"jsonrpc":"2.0","id":1,"method":"ping"}'
		printf '{"jsonrpc":"2.0","method":"large","params":{"x":"'; head -c 300000 /dev/zero | tr '\0' x; echo '"}}'
		read rest
		read answer
		echo '{"jsonrpc":"2.0","id":7,"result":{"got":'"$answer"'}}'
		cat >/dev/null`)
	server, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	opened := session.New(server, session.Limits{Calls: 1, Streams: 1, PendingBytes: 1 << 20, TotalBytes: 8 << 20}, &session.Metrics{})
	defer opened.End(session.ErrEnded)
	server.Serve(opened.Deliver, opened.End)
	text := []byte(`{"jsonrpc":"2.0","id":7,"method":"m","params":{"x":"` + strings.Repeat("x", 300_000) + `"}}`)
	envelope, err := rpc.Scan(text)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := opened.Call(t.Context(), session.Message{Bytes: text, Envelope: envelope})
	if err != nil {
		t.Fatal(err)
	}
	var last string
	for !strings.Contains(last, `"id":7`) {
		select {
		case <-stream.Ready():
		case <-time.After(hang.Guard):
			t.Fatal("no answer")
		}
		for event, ok, _ := stream.Take(); ok; event, ok, _ = stream.Take() {
			last = string(event.Message)
		}
	}
	if want := `{"jsonrpc":"2.0","id":7,"result":{"got":{"jsonrpc":"2.0","id":1,"result":{}}}}`; last != want {
		t.Errorf("got %s, want %s", last, want)
	}
}

// A sender that waits behind others for a process that does not read waits no longer than
// it would alone, however long they go on.
func TestSendersDoNotWaitForOthers(t *testing.T) {
	const short, long = 50 * time.Millisecond, time.Hour
	for name, test := range map[string]struct{ timeout, patience time.Duration }{
		"for as long as the pool allows":  {short, long},
		"for as long as the sender waits": {long, short},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := testOptions
			options.SendTimeout = test.timeout
			c := converse(t, newPool(t, options, "sleep", "1000"))
			c.writing <- struct{}{} // as one does whose write never ends
			const senders = 6
			failed := make(chan error, senders)
			for range senders {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), test.patience)
					defer cancel()
					failed <- c.Send(ctx, session.Message{Bytes: []byte("{}")})
				}()
			}
			g := gomega.NewWithT(t)
			for range senders {
				var err error
				g.Eventually(failed).WithTimeout(hang.Guard).Should(gomega.Receive(&err))
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			}
			<-c.writing
		})
	}
}

package child

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
)

// R09: a process dies with a message half written to it. Whoever writes is told; no
// deadline is needed for that, also if somebody else still holds the process's input.
func TestR09SendEndsWithTheProcess(t *testing.T) {
	for name, script := range map[string]string{
		"alone":             `echo '{"jsonrpc":"2.0","method":"ready"}'; exec sleep 1000`,
		"others hold input": `sleep 1000 <&0 & setsid sleep 1000 <&0 & echo '{"jsonrpc":"2.0","method":"ready"}'; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			pool := newPool(t, testOptions, "sh", "-c", script)
			c := converse(t, pool)
			c.hear()
			const writers = 3 // one writes, the others wait for it
			settled := make(chan error, writers)
			for range writers {
				go func() { settled <- c.Send(t.Context(), []byte(strings.Repeat("x", 4<<20))) }()
			}
			g := gomega.NewWithT(t)
			g.Eventually(func() bool { // the pipe is full, so somebody is writing
				return len(c.writing) == 1
			}).WithTimeout(10 * time.Second).Should(gomega.BeTrue())
			g.Consistently(settled).WithTimeout(50 * time.Millisecond).ShouldNot(gomega.Receive())
			c.process.Stop(0)
			for range writers {
				var err error
				g.Eventually(settled).WithTimeout(10 * time.Second).Should(gomega.Receive(&err))
				if err == nil {
					t.Error("a message that nobody read was sent")
				}
			}
			if reason := c.end().Error(); !strings.Contains(reason, "signal 9") {
				t.Errorf("ended with %s", reason)
			}
			eventuallyNone(t, pool)
		})
	}
}

// Whoever waits behind others for a process that does not read waits no longer than they.
func TestSendersWaitTogether(t *testing.T) {
	options := testOptions
	options.SendTimeout = 500 * time.Millisecond
	pool := newPool(t, options, "sleep", "1000")
	c := converse(t, pool)
	for c.Send(t.Context(), []byte(strings.Repeat("x", 4<<10-1))) == nil { // until the pipe is full; none is written in part
	}
	const senders = 6
	begin := time.Now()
	failed := make(chan error, senders)
	for range senders {
		go func() { failed <- c.Send(t.Context(), []byte("{}")) }()
	}
	hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Send(hasty, []byte("{}")); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) > options.SendTimeout {
		t.Errorf("who does not want to wait: %v after %s", err, time.Since(begin))
	}
	for range senders {
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}
	if took := time.Since(begin); took > 2*options.SendTimeout {
		t.Errorf("it took %s", took)
	}
}

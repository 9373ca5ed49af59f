package front

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

func TestEventHeaders(t *testing.T) {
	for name, test := range map[string]struct{ had, want http.Header }{
		"none": {http.Header{}, http.Header{"Content-Type": {TypeEvents}, "Cache-Control": {"no-cache, no-transform"}, "X-Accel-Buffering": {"no"}}},
		"of a server": {
			http.Header{"Content-Type": {TypeEvents + ";x=y"}, "Cache-Control": {"no-store"}, "X-Accel-Buffering": {"yes"}, "Content-Length": {"5"}},
			http.Header{"Content-Type": {TypeEvents + ";x=y"}, "Cache-Control": {"no-store"}, "X-Accel-Buffering": {"no"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient()
			c.header = test.had
			StartEvents(c, http.StatusAccepted, timeout, nil)
			if c.status != http.StatusAccepted || len(c.header) != len(test.want) {
				t.Errorf("got %d, %v", c.status, c.header)
			}
			for header := range test.want {
				if c.header.Get(header) != test.want.Get(header) {
					t.Errorf("got %v, want %v", c.header, test.want)
				}
			}
		})
	}
}

// texts is a source of events that come one after the other. An empty one ends the stream.
type texts struct {
	next  chan string
	taken string
}

func (s *texts) Gather(to *Events) (more bool) {
	for !to.Full() {
		text := s.taken
		if s.taken = ""; text == "" {
			select {
			case got, open := <-s.next:
				if !open {
					return false
				}
				text = got
			default:
				return true
			}
		}
		to.Append(rpc.Event{Data: []byte(text)})
	}
	return true
}

func (s *texts) Wait(ctx context.Context, _ *Events) {
	select {
	case s.taken = <-s.next:
	case <-ctx.Done():
	}
}

const interval = 15 * time.Second

// run has the events of a source written in the background. It returns how that ends, and when.
func run(c *client, from Source) (all chan bool) {
	all = make(chan bool, 1)
	go func() { all <- StartEvents(c, http.StatusOK, timeout, nil).Run(context.Background(), interval, from) }()
	return all
}

func event(text string) string { return "event: message\ndata: " + text + "\n\n" }

// R33: what there is at a time is written in one go, and comments only in silence.
func TestEventsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, from := newClient(), &texts{next: make(chan string, 8)}
		all := run(c, from)
		after := func(wait time.Duration, want ...string) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			if got := strings.Join(c.read(0), "|"); got != strings.Join(want, "|") {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		after(0)
		from.next <- "1"
		after(0, event("1"))
		after(interval - time.Second)
		from.next <- "2"
		after(interval-time.Second, event("2"))
		after(time.Second, rpc.KeepAlive)
		after(3*interval, rpc.KeepAlive, rpc.KeepAlive, rpc.KeepAlive)
		c.read(time.Second) // while that is written, more comes
		from.next <- "3"
		time.Sleep(time.Millisecond)
		from.next <- "4"
		from.next <- "5"
		close(from.next)
		after(2*time.Second, event("3"), event("4")+event("5"))
		if !<-all {
			t.Error("not all is written")
		}
		after(time.Hour)
	})
}

// A client that does not read is noticed, though there is nothing to write but comments.
func TestEventsToClientThatDoesNotRead(t *testing.T) {
	for name, text := range map[string]string{"event": "1", "comment": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, from := newClient(), &texts{next: make(chan string, 1)}
				c.takes = -1
				began, want := time.Now(), timeout
				if text == "" {
					want += interval
				} else {
					from.next <- text
				}
				if <-run(c, from) || time.Since(began) != want {
					t.Errorf("it ended after %s, want %s", time.Since(began), want)
				}
			})
		})
	}
}

// A client that goes ends the stream, and nothing is written any more.
func TestEventsToClientThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, from := newClient(), &texts{next: make(chan string)}
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		if StartEvents(c, http.StatusOK, timeout, nil).Run(ctx, interval, from) {
			t.Error("all is written")
		}
		time.Sleep(time.Hour)
		if c.text() != "" {
			t.Errorf("got %q", c.text())
		}
	})
}

// A stream holds no buffer while there is nothing to write, and none that is large is kept.
func TestEventBuffers(t *testing.T) {
	c := newClient()
	events := StartEvents(c, http.StatusOK, timeout, nil)
	for _, size := range []int{10, 8 * pieceSize, 10} {
		events.Append(rpc.Event{Data: make([]byte, size)})
		if events.Full() != (size > pieceSize) {
			t.Errorf("full: %v after %d bytes", events.Full(), size)
		}
		pooled := events.pooled
		if err := events.Flush(); err != nil || events.buffer != nil || events.pooled != nil {
			t.Errorf("%v, a buffer of %d bytes is held", err, cap(events.buffer))
		}
		if cap(*pooled) > 4*pieceSize {
			t.Errorf("a buffer of %d bytes is kept", cap(*pooled))
		}
	}
	events.Append(rpc.Event{Data: []byte("forgotten")})
	events.Drop()
	if err := events.Flush(); err != nil || strings.Contains(c.text(), "forgotten") {
		t.Errorf("%v, what was dropped is written", err)
	}
}

// R32, R33: comments stand between the events of another stream, and nowhere else.
func TestRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		events := StartEvents(c, http.StatusOK, timeout, nil)
		events.KeepAlive(time.Second, interval, func() { t.Error("the client is gone") })
		relay := func(text, want string) {
			t.Helper()
			if err := events.Relay([]byte(text)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(interval + time.Second)
			if got := strings.Join(c.read(0), ""); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		time.Sleep(2 * time.Second)
		relay("data: {", rpc.KeepAlive+"data: {")
		relay("}", "}")
		relay("\n", "\n")
		relay("\n", "\n"+rpc.KeepAlive)
		if !events.Close() {
			t.Error("it does not end between events")
		}
		time.Sleep(time.Hour)
		events.keepAlive() // as if it had been about to when the stream ended
		if c.text() != "" {
			t.Errorf("got %q after the end", c.text())
		}
	})
}

func TestBetweenEvents(t *testing.T) {
	for tail, want := range map[string]bool{
		"": true, "\n": true, "\r": true, "\r\n": true, "}\n\n": true, "}\r\r": true, "\r\n\r\n": true, "}\n\r\n": true,
		"}": false, "}\n": false, "}\r": false, "\n}\r\n": false, rpc.KeepAlive: true,
	} {
		if got := betweenEvents([]byte(tail[max(0, len(tail)-4):])); got != want {
			t.Errorf("%q: got %v", tail, got)
		}
	}
}

// Package cost holds the adapter to what it needs for its work: objects and bytes that it
// allocates, and how often it reads and writes. Unlike times, these are the same on every
// machine, so that a change that makes the adapter slower shows at once.
package cost

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"

	"github.com/slipway-mcp/slipway/bench/load"
)

// The limits: what was measured when they were last set, and a little more. A change that
// makes the adapter cheaper lowers them. A change that raises them says why.
const (
	// Of a small call, beyond what net/http needs to answer a request with its own body.
	callObjects = 6.8  // 6.0: one more for each call is too many
	callBytes   = 1850 // 1,747: 768 are for the request on its way through the edge, with its record
	// Of a small call with a token that is known, and a rule, beyond what it needs without.
	authObjects = 0 // 1 is the most that docs promise
	// Of a small call, all in all.
	callReads  = 4.8 // 3.9: two of them find nothing yet
	callWrites = 2.8 // 2.0: one to the server and one to the client
	// On a busy machine half of one more: Go's runtime wakes its poller by writing to itself, the
	// more often the later its threads get to run. One more for each call is too many still.
	// Of a message of 1 MiB, in bytes allocated for each byte of it.
	requestCopies = 1.2 // 1.07
	replyCopies   = 1.2 // 1.01
	// Of a progress event, of a thousand that come at once. How many are read and written
	// together is for the kernel to say, so there is more room; one for each is 1.
	eventObjects = 1.3  // 1.07
	eventBytes   = 800  // 607 to 654
	eventReads   = 0.25 // 0.06
	eventWrites  = 0.25 // 0.02
)

func startAdapter(t *testing.T) *subject {
	t.Helper()
	return start(t, adapterProgram, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--", echoServer)
}

func open(t *testing.T, s *subject) *load.Remote {
	t.Helper()
	return openAs(t, s, "")
}

func openAs(t *testing.T, s *subject, token string) *load.Remote {
	t.Helper()
	session, err := load.OpenWith(s.address, load.Bearer(token))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// caller makes calls one after the other, each with an id of its own.
type caller struct {
	t       *testing.T
	session *load.Remote
	number  int
}

func (c *caller) call(call load.Call, each func([]byte) error) {
	c.t.Helper()
	c.number++
	call.ID = c.number
	if err := c.session.Do(&call, each); err != nil {
		c.t.Fatal(err)
	}
}

func unexpected(message []byte) error { return fmt.Errorf("unexpected message %.200q", message) }

// atMost says what is too much, and by how much.
func atMost(t *testing.T, what string, got, limit float64) {
	t.Helper()
	if got > limit {
		t.Errorf("%s: %.2f, want at most %.2f (the limits and what they are for stand at the top of test/cost/cost_test.go)", what, got, limit)
	}
}

func TestSmallCall(t *testing.T) {
	empty, adapter := smallCall(t, start(t, emptyProgram), ""), smallCall(t, startAdapter(t), "")
	t.Logf("net/http alone %+v, the adapter %+v", empty, adapter)
	atMost(t, "objects that a small call allocates, beyond net/http's", adapter.objects-empty.objects, callObjects)
	atMost(t, "bytes that a small call allocates, beyond net/http's", adapter.bytes-empty.bytes, callBytes)
	atMost(t, "reads of a small call", adapter.reads, callReads)
	atMost(t, "writes of a small call", adapter.writes, callWrites)
}

// smallCall is what a small call needs.
func smallCall(t *testing.T, s *subject, token string) usage {
	t.Helper()
	const calls = 300
	text := bytes.Repeat([]byte("x"), 200)
	arguments := fmt.Appendf(nil, `"text":"%s"`, text)
	c := &caller{t: t, session: openAs(t, s, token)}
	return s.cheapest(calls, func() {
		for range calls {
			c.call(load.Call{Tool: "echo", Arguments: arguments, Text: text}, unexpected)
		}
	})
}

func TestLargeMessage(t *testing.T) {
	const size, calls = 1 << 20, 8
	adapter := startAdapter(t)
	for name, test := range map[string]struct {
		call  func(number int) load.Call
		limit float64
	}{
		"request": {limit: requestCopies, call: func(number int) load.Call {
			arguments := fmt.Appendf(nil, `"text":"%s"`, bytes.Repeat([]byte("x"), size))
			return load.Call{Tool: "count", Arguments: arguments, Text: strconv.AppendInt(nil, int64(number), 10)}
		}},
		"reply": {limit: replyCopies, call: func(int) load.Call {
			return load.Call{Tool: "big", Arguments: []byte(`"n":` + strconv.Itoa(size)), Text: bytes.Repeat([]byte("x"), size)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			adapter.t = t
			c := &caller{t: t, session: open(t, adapter)}
			used := adapter.cheapest(calls, func() {
				for range calls {
					c.call(test.call(c.number+1), unexpected)
				}
			})
			atMost(t, "bytes that are allocated for each byte of a "+name+" of 1 MiB", used.bytes/size, test.limit)
		})
	}
}

func TestProgressEvents(t *testing.T) {
	const calls, events = 4, 1000
	adapter := startAdapter(t)
	c := &caller{t: t, session: open(t, adapter)}
	arguments := fmt.Appendf(nil, `"n":%d,"size":100`, events)
	used := adapter.cheapest(calls*events, func() {
		for range calls {
			seen := 0
			c.call(load.Call{Tool: "burst", Token: c.number + 1, Arguments: arguments, Text: []byte("done")}, func([]byte) error {
				seen++
				return nil
			})
			if seen != events {
				t.Fatalf("%d events arrived of %d", seen, events)
			}
		}
	})
	atMost(t, "objects that a progress event allocates", used.objects, eventObjects)
	atMost(t, "bytes that a progress event allocates", used.bytes, eventBytes)
	atMost(t, "reads of a progress event", used.reads, eventReads)
	atMost(t, "writes of a progress event", used.writes, eventWrites)
}

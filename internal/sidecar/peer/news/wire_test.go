package news

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// noted is a sink.
type noted struct {
	begun bool
	wants int
	all   []string
}

func (n *noted) begin(first *event) {
	if n.begun || len(first.running(n.wants)) != n.wants {
		panic("begun twice, or with another number of wants")
	}
	n.begun = true
}

func (n *noted) tell(of int, changed subscription.Filter) { n.note(of, changed.String()) }
func (n *noted) tellMissed(of int)                        { n.note(of, "all") }

func (n *noted) note(of int, what string) {
	if !n.begun || of < 0 || of >= n.wants {
		panic("told of what was not asked for")
	}
	n.all = append(n.all, fmt.Sprint(of, " ", what))
}

// A pod that does not read costs a bounded amount of memory, and hears that everything may have changed.
func TestSlowReader(t *testing.T) {
	h := newHeard(2)
	for i := range 100 * mostPending { // none of which waits
		h.Changed(0, subscription.MethodUpdated, fmt.Sprintf("a://%d", i))
		if h.count > mostPending || h.bytes > pendingBytes {
			t.Fatalf("%d URIs of %d bytes are pending", h.count, h.bytes)
		}
	}
	for range 3 {
		h.Changed(1, subscription.MethodUpdated, "a://same")
		h.Changed(1, subscription.MethodToolsChanged, "")
	}
	if got, want := h.read(t), `[0 all 1 {"toolsListChanged":true,"resourceSubscriptions":["a://same"]}]`; got != want {
		t.Errorf("the other pod reads %s, want %s", got, want)
	}
	if h.count != 0 || h.bytes != 0 {
		t.Errorf("%d URIs of %d bytes are pending after all was read", h.count, h.bytes)
	}
	h.Changed(0, subscription.MethodUpdated, strings.Repeat("x", uriBytes+1))
	if got := h.read(t); got != "[0 all]" {
		t.Errorf("after a change of a long URI: %s", got)
	}
	// No event is too large to be read, whatever is in the URIs.
	for i := range 30 {
		h.Changed(0, subscription.MethodUpdated, strings.Repeat("\x01", uriBytes-100)+strconv.Itoa(i))
	}
	if got := h.read(t); strings.Count(got, `\u0001`+"0\"")+strings.Count(got, "29\"") == 0 {
		t.Error("changes got lost")
	}
}

// read is what another pod reads of a stream.
func (h *heard) read(t *testing.T) string {
	t.Helper()
	w := httptest.NewRecorder()
	events := front.StartEvents(w, http.StatusOK, 0, nil)
	events.Append(rpc.Event{Data: encode(&event{Begins: true})})
	h.Gather(events)
	if err := events.Flush(); err != nil {
		t.Fatal(err)
	}
	n := &noted{wants: len(h.pending)}
	_ = read(w.Body, len(h.pending), n)
	return fmt.Sprint(n.all)
}

// What is asked for is bounded, and read as it was written.
func TestAsk(t *testing.T) {
	wanted := []subscription.Want{{Filter: subscription.Filter{Lists: subscription.All()}}, {Principal: "user x"}}
	for i := range 2 * mostURIs {
		wanted[0].URIs = append(wanted[0].URIs, fmt.Sprintf("a://%05d", i))
	}
	body, within := encodeWants(wanted)
	got, err := decodeWants(body)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(within) || len(within) != 2 || len(within[0].URIs) != mostURIs || len(body) > mostAsked {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	more, _ := json.Marshal(asked{Wants: []want{{URIs: wanted[0].URIs}}})
	if _, err := decodeWants(more); err == nil {
		t.Error("another pod may want more than it may")
	}
	huge := subscription.Want{Filter: subscription.Filter{URIs: []string{strings.Repeat("\x01", mostAsked/4)}}}
	if body, _ := encodeWants([]subscription.Want{huge}); len(body) > mostAsked {
		t.Errorf("%d bytes are asked for", len(body))
	}
	take := func(int) bool { return true }
	if _, err := readAsk(bytes.NewReader(make([]byte, mostAsked+1)), take); err == nil {
		t.Error("a request of any size is read")
	}
	if _, err := readAsk(strings.NewReader("{}"), func(int) bool { return false }); err == nil {
		t.Error("a request is read without room for it")
	}
}

// Whatever a pod sends, it is told of nothing that was not asked for, and its end is found.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"data: {\"begins\":true,\"running\":[0,7,-1],\"of\":0}\n\ndata: {\"of\":1,\"lists\":[\"tools\",\"x\"],\"uris\":[\"b\",\"a\",\"a\"]}\n\n: \n\ndata: {\"of\":0,\"all\":true}\n\n",
		"data: {\"of\":0,\"all\":true}\n\n", "data: {\"begins\":true}\n\ndata: {\"begins\":true}\n\n", "data: {\"begins\":true}\n\ndata: {\"of\":2,\"all\":true}\n\n", "data: x\n\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		if err := read(bytes.NewReader(stream), 2, &noted{wants: 2}); err == nil {
			t.Error("the end is no error")
		}
	})
}

// FuzzWants finds out whether what another pod wants is always in order.
func FuzzWants(f *testing.F) {
	f.Add([]byte(`{"wants":[{"principal":"user x","lists":["tools"],"uris":["b","a","a"]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		wants, err := decodeWants(body)
		if err != nil {
			return
		}
		for _, w := range wants {
			if !w.Includes(w.Filter) {
				t.Errorf("%+v is not in order", w)
			}
		}
	})
}

package cost

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Objects that a small call allocates, all in all, for clients of each era of one and the
// same server: what was measured when they were last set, and a little more.
const (
	sessionObjects           = 36.8 // 36.0
	sessionTranslatedObjects = 42.8 // 42.0
	singleObjects            = 39.8 // 39.0
	singleTranslatedObjects  = 44.8 // 44.0
)

// eraClient calls a tool again and again, by one revision.
type eraClient struct {
	t       *testing.T
	url     string
	header  http.Header
	request string // with the number of the request in place of %d
	number  int
}

func newEraClient(t *testing.T, address, meta string, headers ...string) *eraClient {
	t.Helper()
	c := &eraClient{t: t, url: "http://" + address + "/mcp", header: http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
	}}
	for i := 0; i < len(headers); i += 2 {
		c.header.Set(headers[i], headers[i+1])
	}
	c.request = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"pid","arguments":{}` + meta + `}}`
	return c
}

// withSession opens a session.
func withSession(t *testing.T, address string) *eraClient {
	t.Helper()
	c := newEraClient(t, address, "")
	response := c.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	c.header.Set("Mcp-Session-Id", response.Header.Get("Mcp-Session-Id"))
	c.header.Set("Mcp-Protocol-Version", "2025-11-25")
	c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

// without has no session.
func without(t *testing.T, address string) *eraClient {
	t.Helper()
	const meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	return newEraClient(t, address, meta, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "pid")
}

// post sends a message and reads all of the answer.
func (c *eraClient) post(body string) *http.Response {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header = c.header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	answer, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || response.StatusCode >= http.StatusBadRequest || bytes.Contains(answer, []byte(`"error"`)) {
		c.t.Fatalf("%s: %s, %v", response.Status, answer, err)
	}
	return response
}

func (c *eraClient) calls(n int) {
	c.t.Helper()
	for range n {
		c.number++
		c.post(fmt.Sprintf(c.request, c.number))
	}
}

// processorTime is what a process has computed so far, in nanoseconds.
func (s *subject) processorTime() (sum float64) {
	s.t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.pid))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		on, _, _ := strings.Cut(string(text), " ")
		nanoseconds, err := strconv.ParseFloat(on, 64)
		if err != nil {
			s.t.Fatalf("%s: %q", thread, text)
		}
		sum += nanoseconds
	}
	return sum
}

// eraWay is one way to be served.
type eraWay struct {
	name, era string
	open      func(*testing.T, string) *eraClient
	objects   float64

	subject *subject
	client  *eraClient
	took    []float64 // of the adapter's processor time, for each call, in each round
}

// startWays starts an adapter for each way, where client and server have an era in
// common, and where they have not.
func startWays(t *testing.T) []*eraWay {
	t.Helper()
	ways := []*eraWay{
		{name: "with a session", era: "Auto", open: withSession, objects: sessionObjects},
		{name: "with a session, translated", era: "Stateless", open: withSession, objects: sessionTranslatedObjects},
		{name: "without", era: "Auto", open: without, objects: singleObjects},
		{name: "without, translated", era: "Stateful", open: without, objects: singleTranslatedObjects},
	}
	for _, way := range ways {
		way.subject = start(t, adapterProgram, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--sessions", way.era, "--stateless-clients", "Translate", "--", bothServer)
		way.client = way.open(t, way.subject.address)
	}
	return ways
}

// What a call costs each way.
func TestEras(t *testing.T) {
	const calls = 200
	for _, way := range startWays(t) {
		used := way.subject.cheapest(calls, func() { way.client.calls(calls) })
		atMost(t, "objects that a small call allocates, "+way.name, used.objects, way.objects)
		t.Logf("%s: %+v", way.name, used)
	}
}

// Processor time is for people to read: on a busy machine a call takes more of it.
func TestLongErasProcessorTime(t *testing.T) {
	const calls, rounds = 500, 9
	ways := startWays(t)
	for _, way := range ways {
		way.client.calls(calls) // buffers are made, connections are there
	}
	for range rounds { // in turn, so that what else the machine does is shared
		for _, way := range ways {
			begin := way.subject.processorTime()
			way.client.calls(calls)
			way.took = append(way.took, (way.subject.processorTime()-begin)/calls)
		}
	}
	t.Logf("times the processor time of a native call, in the median of %d rounds: with a session %.2f, without %.2f; without to with, both native, %.2f",
		rounds, ratio(ways[1], ways[0]), ratio(ways[3], ways[2]), ratio(ways[2], ways[0]))
}

// ratio is by how much one way took longer than another, in the median round.
func ratio(of, to *eraWay) float64 {
	ratios := make([]float64, len(of.took))
	for i := range ratios {
		ratios[i] = of.took[i] / to.took[i]
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

package cost

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/test/servers"
)

// Objects that a small call allocates, all in all, for clients of each era of one and the
// same server: what was measured when they were last set, and a little more.
const (
	sessionObjects           = 38.8 // 38.0
	sessionTranslatedObjects = 64   // 63.0
	singleObjects            = 58.8 // 58.0
	singleTranslatedObjects  = 89   // 88.0
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

// quickest is the least processor time that n operations took, for each of them, in
// several tries.
func (s *subject) quickest(n int, operations func()) (least float64) {
	s.t.Helper()
	const tries = 5
	for i := range tries {
		begin := s.processorTime()
		operations()
		if took := (s.processorTime() - begin) / float64(n); i == 0 || took < least {
			least = took
		}
	}
	return least
}

// What a call costs where client and server have an era in common, and where they have not.
func TestEras(t *testing.T) {
	both := filepath.Join(t.TempDir(), "both")
	if err := servers.Build(t.Context(), both, "test/servers/both"); err != nil {
		t.Fatal(err)
	}
	const calls = 1000
	times := map[string]float64{}
	for _, way := range []struct {
		name, era string
		open      func(*testing.T, string) *eraClient
		objects   float64
	}{
		{"with a session", "auto", withSession, sessionObjects},
		{"with a session, translated", "modern", withSession, sessionTranslatedObjects},
		{"without", "auto", without, singleObjects},
		{"without, translated", "legacy", without, singleTranslatedObjects},
	} {
		t.Run(way.name, func(t *testing.T) {
			s := start(t, adapterProgram, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--era", way.era, "--", both)
			c := way.open(t, s.address)
			used := s.cheapest(calls, func() { c.calls(calls) })
			times[way.name] = s.quickest(calls, func() { c.calls(calls) })
			t.Logf("%+v, %.1f µs of the adapter's", used, times[way.name]/1000)
			atMost(t, "objects that a small call allocates", used.objects, way.objects)
		})
	}
	t.Logf("times the processor time of a native call: with a session %.2f, without %.2f",
		times["with a session, translated"]/times["with a session"], times["without, translated"]/times["without"])
}

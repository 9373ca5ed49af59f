package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
)

const modernCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`

// What the proxy looks into for states passes byte for byte, but for the seals.
func TestStreamsWithStates(t *testing.T) {
	t.Parallel()
	const asks, sealed = `{ "jsonrpc":"2.0","id":1,"result":{"requestState":"s"}}`, `{ "jsonrpc":"2.0","id":1,"result":{"requestState":"SEALs"}}`
	seal := func(message []byte) []byte { return []byte(strings.Replace(string(message), asks, sealed, 1)) }
	long := strings.Repeat("x", 2*sealedBytes)
	for name, test := range map[string]struct{ given, want string }{
		"an answer":            {"data: " + asks + "\n\n", "data: " + sealed + "\n\n"},
		"without a blank":      {"data:" + asks + "\n\n", "data:" + sealed + "\n\n"},
		"other ends of lines":  {"id: 1\r\ndata: " + asks + "\r\n\r\n", "id: 1\r\ndata: " + sealed + "\r\n\r\n"},
		"lines that end in CR": {"id: 1\rdata: " + asks + "\r\rdata: " + asks + "\r\r", "id: 1\rdata: " + sealed + "\r\rdata: " + sealed + "\r\r"},
		"mixed ends of lines":  {"data: " + asks + "\r\n\rdata: " + asks + "\n\r\n", "data: " + sealed + "\r\n\rdata: " + sealed + "\n\r\n"},
		"a long line with CR":  {": " + long + "\rdata: " + asks + "\r\r", ": " + long + "\rdata: " + sealed + "\r\r"},
		"a long line before":   {": " + long + "\ndata: " + asks + "\n\n", ": " + long + "\ndata: " + sealed + "\n\n"},
		"in a long line":       {"data: " + asks + long + "\n\n", "data: " + asks + long + "\n\n"},
		"not in a message":     {": " + asks + "\n\n", ": " + asks + "\n\n"},
		"no event":             {"data: " + asks, "data: " + asks},
		"nothing":              {"", ""},
		"many lines":           {strings.Repeat(": x\n\ndata: "+asks+"\n\n", 9), strings.Repeat(": x\n\ndata: "+sealed+"\n\n", 9)},
	} {
		for how, reader := range map[string]io.Reader{
			"at once": strings.NewReader(test.given), "in bytes": iotest.OneByteReader(strings.NewReader(test.given)), "with its end": iotest.DataErrReader(strings.NewReader(test.given)),
		} {
			got, err := io.ReadAll(&stateReader{ReadCloser: io.NopCloser(reader), seal: seal})
			if err != nil || string(got) != test.want {
				t.Errorf("%s, %s: %.200q, %v, want %.200q", name, how, got, err, test.want)
			}
		}
	}
	broken := &stateReader{ReadCloser: io.NopCloser(io.MultiReader(strings.NewReader("data: x"), iotest.ErrReader(io.ErrUnexpectedEOF))), seal: seal}
	if got, err := io.ReadAll(broken); string(got) != "data: x" || err == nil {
		t.Errorf("%q, %v of a stream that breaks off", got, err)
	}
}

// A line reaches the client when it has come, and does not wait for the next one.
func TestLinesDoNotWait(t *testing.T) {
	t.Parallel()
	for name, event := range map[string]string{"LF": "data: 1\n\n", "CRLF": "data: 1\r\n\r\n", "CR": "data: 1\r\r", "CRLF without its end": "data: 1\r\n\r"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := io.Pipe()
			defer func() { _ = from.Close() }()
			reader := &stateReader{ReadCloser: from, seal: func(message []byte) []byte { return message }}
			go func() { _, _ = io.WriteString(to, event+"da") }()
			got := make(chan string, 1)
			go func() {
				into := make([]byte, 100)
				n, err := reader.Read(into)
				got <- fmt.Sprint(string(into[:n]), err)
			}()
			select {
			case got := <-got:
				if want := fmt.Sprint(event, nil); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			case <-time.After(hang.Guard):
				t.Error("the event is held back")
			}
		})
	}
}

// With other pods, the proxy seals the states of unverified callers in all answers but large ones.
func TestAnswersWithStates(t *testing.T) {
	t.Parallel()
	answer := func(size int) string {
		begin, end := `{"jsonrpc":"2.0","id":1,"result":{"text":"`, `","requestState":"s"}}`
		return begin + strings.Repeat("x", size-len(begin)-len(end)) + end
	}
	for name, test := range map[string]struct {
		peers  bool
		body   string
		size   int
		sealed bool
	}{
		"small":          {true, modernCall, 1000, true},
		"large":          {true, modernCall, sealedBytes, false},
		"very large":     {true, modernCall, 3 * sealedBytes, false},
		"no other pods":  {false, modernCall, 1000, false},
		"of a session":   {true, callTool, 1000, false},
		"takes no input": {true, strings.Replace(modernCall, "tools/call", "tools/list", 1), 1000, false},
	} {
		given := answer(test.size)
		e := newEndpoint(t, newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", typeJSON)
			_, _ = io.WriteString(w, given)
		})), func(o *Options) { o.Handles = newHandles(t, test.peers) })
		got := text(t, e.Do(http.MethodPost, test.body, headerRevision, "2026-07-28"))
		if sealed := got != given; sealed != test.sealed || sealed && !strings.HasSuffix(got, `.s"}}`) {
			t.Errorf("%s: the client gets %d bytes of %d, %.200s", name, len(got), len(given), got[max(0, len(got)-200):])
		}
	}
}

// While the adapter drains, what was begun here goes on: no other pod can.
func TestStatesWhileDraining(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", typeJSON)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"requestState":"s"}}`)
	})), func(o *Options) { o.Handles = newHandles(t, true) })
	got := text(t, e.Do(http.MethodPost, modernCall, headerRevision, "2026-07-28"))
	_, state, _ := strings.Cut(got, `"requestState":`)
	goesOn := strings.Replace(modernCall, `"name":"a"`, `"name":"a","requestState":`+strings.TrimSuffix(state, "}}"), 1)
	e.proxy.Sessions.Refuse()
	for body, want := range map[string]int{modernCall: http.StatusServiceUnavailable, goesOn: http.StatusOK, strings.Replace(goesOn, ".s", ".t", 1): http.StatusServiceUnavailable} {
		if response := e.Do(http.MethodPost, body, headerRevision, "2026-07-28"); response.StatusCode != want {
			t.Errorf("%s: got %s, want %d", body, response.Status, want)
		}
	}
}

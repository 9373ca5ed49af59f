package plugin

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

// typed is an environment whose user types a text.
func typed(input string, screen table.Screen) (e *environment, out, errOut *bytes.Buffer) {
	out, errOut = &bytes.Buffer{}, &bytes.Buffer{}
	return &environment{Terminal: Terminal{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(input), Out: out, ErrOut: errOut}, Screen: screen,
	}}, out, errOut
}

// Nothing is sent to a server without the consent of the user.
func TestElicit(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","required":["size"],"properties":{"size":{"type":"integer"},"color":{"type":"string","default":"red"},"note":{"type":"string"}}}`)
	for name, test := range map[string]struct {
		params *mcp.ElicitParams
		typed  string
		want   *mcp.ElicitResult
	}{
		"values and consent": {
			&mcp.ElicitParams{Message: "Which?", RequestedSchema: schema}, "\n\nlarge\n3\ny\n",
			&mcp.ElicitResult{Action: "accept", Content: map[string]any{"color": "red", "size": json.Number("3")}},
		},
		"values without consent": {&mcp.ElicitParams{Message: "Which?", RequestedSchema: schema}, "blue\n\n3\nn\n", &mcp.ElicitResult{Action: "decline"}},
		"no last word":           {&mcp.ElicitParams{Message: "Which?", RequestedSchema: schema}, "blue\n\n3\n", &mcp.ElicitResult{Action: "cancel"}},
		"the end of the input":   {&mcp.ElicitParams{Message: "Which?", RequestedSchema: schema}, "", &mcp.ElicitResult{Action: "cancel"}},
		"nothing but consent":    {&mcp.ElicitParams{Message: "Delete all?", RequestedSchema: json.RawMessage(`{}`)}, "\n", &mcp.ElicitResult{Action: "decline"}},
		"a URL":                  {&mcp.ElicitParams{Message: "Log in", URL: "https://example.com"}, "yes\n", &mcp.ElicitResult{Action: "accept"}},
		"a URL, not opened":      {&mcp.ElicitParams{Message: "Log in", URL: "https://example.com"}, "\n", &mcp.ElicitResult{Action: "decline"}},
	} {
		t.Run(name, func(t *testing.T) {
			e, _, errOut := typed(test.typed, table.Screen{})
			got, err := e.elicit(t.Context(), &mcp.ElicitRequest{Params: test.params})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, errOut)
			}
		})
	}
}

// What a server returns cannot steer a terminal, of whatever width. A pipe gets it as it is.
func TestShow(t *testing.T) {
	const hostile = "a\x1b[2J\u202eb\u00adc\x07"
	for name, test := range map[string]struct {
		screen table.Screen
		want   string
	}{
		"a terminal":                  {table.Screen{IsTerminal: true, Width: 80}, "a [2J\ufffdb\ufffdc \n"},
		"a terminal of unknown width": {table.Screen{IsTerminal: true}, "a [2J\ufffdb\ufffdc \n"},
		"a pipe":                      {table.Screen{}, hostile + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			e, out, _ := typed("", test.screen)
			if err := e.printResult(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: hostile}}}); err != nil {
				t.Fatal(err)
			}
			if out.String() != test.want {
				t.Errorf("got %q, want %q", out, test.want)
			}
		})
	}
}

// A result of 1 MiB is shown whole, and none of it steers the terminal.
func TestShowMuch(t *testing.T) {
	const hostile = "a\x1b[2J\u202eb\r"
	e, out, _ := typed("", table.Screen{IsTerminal: true, Width: 80})
	much := strings.Repeat(hostile, 1<<20/len(hostile))
	if err := e.printResult(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: much}}}); err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("byte %d is %q", i, out.String()[i:min(i+8, out.Len())])
	}
	if got, want := strings.Count(out.String(), "b"), strings.Count(much, "b"); got != want {
		t.Errorf("%d parts are shown, want %d", got, want)
	}
}

// connect serves programs and pages of this machine only.
func TestGuard(t *testing.T) {
	handler := guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	for name, test := range map[string]struct {
		host, origin string
		want         int
	}{
		"a program":            {"127.0.0.1:16270", "", http.StatusOK},
		"localhost":            {"localhost:16270", "", http.StatusOK},
		"IPv6":                 {"[::1]:16270", "", http.StatusOK},
		"another name":         {"rebound.example:16270", "", http.StatusForbidden},
		"another address":      {"192.0.2.1:16270", "", http.StatusForbidden},
		"an inspector":         {"127.0.0.1:16270", "http://localhost:6274", http.StatusOK},
		"a page":               {"127.0.0.1:16270", "https://evil.example", http.StatusForbidden},
		"a page of no host":    {"127.0.0.1:16270", "null", http.StatusForbidden},
		"a name that looks so": {"127.0.0.1:16270", "http://localhost.evil.example", http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
			request.Host = test.host
			if test.origin != "" {
				request.Header.Set("Origin", test.origin)
			}
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			if recorder.Code != test.want {
				t.Errorf("status %d, want %d", recorder.Code, test.want)
			}
		})
	}
}

package plugin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/plugin/manifest"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

// On a terminal, new asks for what is missing until the answer fits.
func TestNewAsks(t *testing.T) {
	const name, image, transport, port = "Name of the server: ", "Image that holds it, such as registry.example/team/tickets:1.4: ", "What it speaks (stdio, streamable-http, sse): ", "Port that it listens on: "
	const nameRule = "it must have at most 63 lower-case letters, digits and '-', begin with a letter and not end with '-'\n"
	for label, test := range map[string]struct {
		request   manifest.Request
		typed     string
		want      manifest.Request
		wantAsked string
		wantError string
	}{
		"everything": {
			typed: "tickets\nregistry.example/tickets\nstdio\n", want: manifest.Request{Name: "tickets", Image: "registry.example/tickets", Transport: "stdio"},
			wantAsked: name + image + transport,
		},
		"the port of a server that listens": {
			request: manifest.Request{Name: "tickets", Image: "tickets"}, typed: "sse\nmany\n16270\n 8000 \n",
			want:      manifest.Request{Name: "tickets", Image: "tickets", Transport: "sse", Port: new(int32(8000))},
			wantAsked: transport + port + "it must be a number\n" + port + "it must be one from 1 to 65535, and not from 16270 to 16279, which are the adapter's\n" + port,
		},
		"again": {
			request: manifest.Request{Package: "npm:search@1.2.3"}, typed: "Search\nsearch\n", want: manifest.Request{Name: "search", Package: "npm:search@1.2.3"},
			wantAsked: name + nameRule + name,
		},
		"nothing": {
			request: manifest.Request{Name: "tickets", Image: "tickets", Transport: "stdio"}, want: manifest.Request{Name: "tickets", Image: "tickets", Transport: "stdio"},
		},
		"the end of the input": {request: manifest.Request{Name: "tickets"}, typed: "", wantAsked: image, wantError: "missing: --image"},
	} {
		t.Run(label, func(t *testing.T) {
			e, _, errOut := typed(test.typed, table.Screen{})
			err := e.askMissing(t.Context(), &test.request, true)
			if errOut.String() != test.wantAsked {
				t.Errorf("asked %q, want %q", errOut, test.wantAsked)
			}
			if test.wantError != "" {
				if err == nil || err.Error() != test.wantError || explain(err).code != exitUnexpected {
					t.Errorf("got error %v, want %q", err, test.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, test.request); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewArguments(t *testing.T) {
	for name, test := range map[string]struct {
		request   manifest.Request
		args      []string
		at        int
		want      manifest.Request
		wantError string
	}{
		"a name":                   {args: []string{"tickets"}, at: -1, want: manifest.Request{Name: "tickets"}},
		"a command":                {args: []string{"tickets", "node", "a.js"}, at: 1, want: manifest.Request{Name: "tickets", Command: []string{"node"}, Args: []string{"a.js"}}},
		"a command without a name": {args: []string{"node"}, at: 0, want: manifest.Request{Command: []string{"node"}, Args: []string{}}},
		"arguments of a package":   {request: manifest.Request{Package: "p"}, args: []string{"t", "--eu"}, at: 1, want: manifest.Request{Name: "t", Package: "p", Args: []string{"--eu"}}},
		"two names":                {args: []string{"a", "b"}, at: -1, wantError: "a server has one name"},
		"a command by both":        {request: manifest.Request{Command: []string{"node"}}, args: []string{"t", "node"}, at: 1, wantError: "but not both"},
	} {
		t.Run(name, func(t *testing.T) {
			err := splitArgs(&test.request, test.args, test.at)
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("got error %v, want %q", err, test.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, test.request); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

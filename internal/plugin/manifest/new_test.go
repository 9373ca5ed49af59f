package manifest

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// requests are servers that a person could want. Each has a golden file.
func requests() map[string]Request {
	const image = "registry.example:5000/team/tickets:1.4"
	return map[string]Request{
		"stdio":           {Name: "tickets", Image: image, Transport: "stdio"},
		"streamable-http": {Name: "tickets", Image: image, Transport: "streamable-http", Port: new(int32(3000))},
		"sse":             {Name: "tickets", Image: image, Transport: "sse", Port: new(int32(65535)), Path: "/events"},
		"npm":             {Name: "tickets", Package: "npm:@acme/tickets@2.1.0", Args: []string{"--region", "eu"}},
		"pypi":            {Name: "tickets", Package: "pypi:mcp-tickets@2.1.0", Transport: "stdio"},
		"all": {
			Namespace: "support", Name: "tickets", Image: image, Transport: "streamable-http", Port: new(int32(3000)), Path: "/mcp",
			Command: []string{"node", "dist/index.js"}, Args: []string{"--token=$(TICKETS_TOKEN)"}, Replicas: new(int32(0)),
			Env:       []string{"TICKETS_URL=https://tickets.example/?a=b", "EMPTY="},
			SecretEnv: []string{"TICKETS_TOKEN", "TICKETS_USER", "TICKETS_PROXY=proxy.settings/url"},
		},
	}
}

func TestNew(t *testing.T) {
	for name, request := range requests() {
		t.Run(name, func(t *testing.T) {
			result, err := New(request)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", "new", name+".yaml"), encoded(t, result))
			if err := errors.Join(refusals(t, result)...); err != nil {
				t.Errorf("an API server would refuse: %v", err)
			}
		})
	}
}

// A package becomes what Import makes of the command that starts it.
func TestNewPackageIsImported(t *testing.T) {
	for name, test := range map[string]struct{ asked, config string }{
		"npm":  {"npm:@acme/search@2.1.0", `{"mcpServers":{"search":{"command":"npx","args":["@acme/search@2.1.0","--region","eu"]}}}`},
		"pypi": {"pypi:mcp-search@2.1.0", `{"mcpServers":{"search":{"command":"uvx","args":["mcp-search@2.1.0","--region","eu"]}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			made, err := New(Request{Name: "search", Package: test.asked, Args: []string{"--region", "eu"}})
			if err != nil {
				t.Fatal(err)
			}
			imported, err := Import([]File{{Name: "config.json", Content: []byte(test.config)}}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(encoded(t, imported), encoded(t, made)); diff != "" {
				t.Errorf("(-imported +new):\n%s", diff)
			}
			if len(made.Changed) != 1 || made.Changed[0].Why != imported.Changed[0].Why {
				t.Errorf("remarks %v, imported %v", made.Changed, imported.Changed)
			}
		})
	}
}

// The error lists all wrong flags at once, with the allowed values.
func TestNewRefuses(t *testing.T) {
	fine := Request{Name: "tickets", Image: "tickets", Transport: "stdio"}
	const nameRule = "it must have at most 63 lower-case letters, digits and '-', begin with a letter and not end with '-'"
	const portRule = "it must be one from 1 to 65535, and not from 16270 to 16279, which are the adapter's"
	const envRule = "a variable must have a name of letters, digits, '_', '-' and '.', and not begin with a digit"
	const secretRule = "it must be KEY, or KEY=SECRET/KEY with a Secret of the namespace and one of its keys"
	const packageRule = "it must be npm:NAME@VERSION or pypi:NAME@VERSION with an exact version, such as npm:@acme/search@2.1.0"
	for name, test := range map[string]struct {
		change func(*Request)
		want   string
	}{
		"an upper-case name":  {func(r *Request) { r.Name = "Tickets" }, `NAME "Tickets": ` + nameRule},
		"a digit first":       {func(r *Request) { r.Name = "1tickets" }, `NAME "1tickets": ` + nameRule},
		"a long name":         {func(r *Request) { r.Name = strings.Repeat("a", 64) }, `NAME "` + strings.Repeat("a", 64) + `": ` + nameRule},
		"a name that steers":  {func(r *Request) { r.Name = "a\x1b[2J" }, `NAME "a [2J": ` + nameRule},
		"a namespace":         {func(r *Request) { r.Namespace = "a.b" }, `--namespace "a.b": it must be a DNS label`},
		"an image with space": {func(r *Request) { r.Image = "a b" }, `--image "a b": ` + wrongImage},
		"an upper-case image": {func(r *Request) { r.Image = "Team/Tickets" }, `--image "Team/Tickets": ` + wrongImage + " (could not parse reference: Team/Tickets)"},
		"a short digest":      {func(r *Request) { r.Image = "tickets@sha256:ab" }, `--image "tickets@sha256:ab": ` + wrongImage + " (could not parse reference: tickets@sha256:ab)"},
		"a transport":         {func(r *Request) { r.Transport = "http" }, `--transport "http": it must be stdio, streamable-http or sse`},
		"a port of the adapter": {
			func(r *Request) { r.Transport, r.Port = "sse", new(int32(16270)) }, `--port "16270": ` + portRule,
		},
		"no port": {func(r *Request) { r.Transport = "sse" }, `--port "": it must be set with --transport sse: it is the port that the server listens on`},
		"port 0":  {func(r *Request) { r.Transport, r.Port = "sse", new(int32(0)) }, `--port "0": ` + portRule},
		"a path": {
			func(r *Request) { r.Transport, r.Port, r.Path = "sse", new(int32(80)), "a?b" }, `--path "a?b": it must start with '/' and hold no white space, '?' or '#'`,
		},
		"a port of stdio":        {func(r *Request) { r.Port = new(int32(80)) }, `--port "80": it is for streamable-http and sse: leave it out with --transport stdio`},
		"a path of stdio":        {func(r *Request) { r.Path = "/mcp" }, `--path "/mcp": it is for streamable-http and sse: leave it out with --transport stdio`},
		"replicas":               {func(r *Request) { r.Replicas = new(int32(1001)) }, `--replicas "1001": it must be a number from 0 to 1000`},
		"no value":               {func(r *Request) { r.Env = []string{"A"} }, `--env "A": it must be KEY=VALUE`},
		"no name":                {func(r *Request) { r.Env = []string{"=b"} }, `--env "": ` + envRule},
		"a reserved name":        {func(r *Request) { r.Env = []string{"SLIPWAY_A=b"} }, `--env "SLIPWAY_A": variables whose name starts with SLIPWAY_ are reserved`},
		"a variable twice":       {func(r *Request) { r.Env, r.SecretEnv = []string{"A=b"}, []string{"A"} }, `--secret-env "A": the variable is there twice`},
		"a Secret without a key": {func(r *Request) { r.SecretEnv = []string{"A=secret"} }, `--secret-env "A=secret": ` + secretRule},
		"a key without a Secret": {func(r *Request) { r.SecretEnv = []string{"A=/key"} }, `--secret-env "A=/key": ` + secretRule},
		"a package without a version": {
			func(r *Request) { r.Image, r.Package = "", "npm:@acme/search" }, `--package "npm:@acme/search": ` + packageRule,
		},
		"a package with a tag":     {func(r *Request) { r.Image, r.Package = "", "npm:search@latest" }, `--package "npm:search@latest": ` + packageRule},
		"a package that is a flag": {func(r *Request) { r.Image, r.Package = "", "pypi:--from@1.2" }, `--package "pypi:--from@1.2": ` + packageRule},
		"a package of no index":    {func(r *Request) { r.Image, r.Package = "", "search@1.2.3" }, `--package "search@1.2.3": ` + packageRule},
		"a package and an image":   {func(r *Request) { r.Package = "npm:search@1.2.3" }, `--image "tickets": leave it out with --package, which brings an image`},
		"a package over HTTP":      {func(r *Request) { r.Image, r.Package, r.Transport = "", "npm:search@1.2.3", "sse" }, `--transport "sse": a --package is started with npx or uvx, which speak stdio: build an image for another transport`},
		"a package and a command":  {func(r *Request) { r.Image, r.Package, r.Command = "", "npm:search@1.2.3", []string{"node"} }, `--command "node": leave it out with --package, which brings a command; arguments stand after --`},
		"too many words":           {func(r *Request) { r.Args = make([]string, 257) }, "kubectl mcp new: tickets: spec.command or spec.args of the MCPServer would be refused: they may have 256 words of 32768 characters each"},
		"everything that is wrong": {func(r *Request) { r.Name, r.Transport = "", "" }, "NAME \"\": " + nameRule + "\n" + `--transport "": it must be stdio, streamable-http or sse`},
	} {
		t.Run(name, func(t *testing.T) {
			request := fine
			test.change(&request)
			result, err := New(request)
			if err == nil {
				t.Fatalf("made %s", encoded(t, result))
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A value that looks like a secret is not kept back, but told of.
func TestNewNamesSecrets(t *testing.T) {
	result, err := New(Request{Name: "tickets", Image: "tickets", Transport: "stdio", Env: []string{"GITHUB_TOKEN=abc", "LOG=debug"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Changed) != 1 || result.Changed[0].Field != "--env GITHUB_TOKEN" {
		t.Errorf("remarks %v", result.Changed)
	}
	if server := result.Objects[0].(*mcpv1alpha1.MCPServer); len(server.Spec.Env) != 2 {
		t.Errorf("variables %v", server.Spec.Env)
	}
}

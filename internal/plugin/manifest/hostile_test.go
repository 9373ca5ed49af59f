package manifest

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// An error names the file, the place, what is wrong there and what to do.
func TestErrors(t *testing.T) {
	toolHive := "apiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPServer\nmetadata: {name: a}\nspec:\n  image: x\n"
	lifecycle := "apiVersion: mcp.x-k8s.io/v1beta1\nkind: MCPServer\nmetadata: {name: a}\nspec:\n"
	for name, test := range map[string]struct{ content, want string }{
		"empty":             {" \n", "f: the file is empty"},
		"only comments":     {"# nothing\n---\n", "f: the file is empty"},
		"not UTF-8":         {"{\"mcpServers\": \"\xff\"}", "f: the file is not UTF-8: save it as UTF-8"},
		"another format":    {"a: 1", "f: line 1: this is no format that can be imported"},
		"a list":            {"[]", "f: line 1: this is no format that can be imported"},
		"text":              {"hello", "f: line 1: this is no format that can be imported"},
		"servers as a list": {`{"mcpServers": []}`, "f: line 1: this is no format that can be imported"},
		"broken JSON":       {"{\n\"mcpServers\": {\n\"a\": }", "f: line 3: "},
		"JSON that ends":    {"{\n\"mcpServers\": {", "f: line 2: the JSON ends too early: a bracket or a quote is missing"},
		"two JSON values":   {`{"mcpServers": {}} {}`, "there is more after the end of the JSON value"},
		"broken YAML":       {"a: [", "f: line 1: "},
		"same name twice":   {"{\"mcpServers\": {\n\"a\": {},\n\"a\": {}}}", `f: line 3: "a" is there twice: remove one`},
		"same field twice":  {"a: 1\na: 2", `f: line 2: "a" is there twice: remove one`},
		"command":           {"{\"mcpServers\": {\"a\":\n {\"command\": 7}}}", "f: line 2: mcpServers.a.command must be text, not a number"},
		"args":              {`{"mcpServers": {"a": {"command": "npx", "args": "x"}}}`, "f: line 1: mcpServers.a.args must be a list, not text"},
		"an argument":       {`{"mcpServers": {"a b": {"command": "npx", "args": [["x"]]}}}`, `f: line 1: mcpServers["a b"].args[0] must be text, not a list`},
		"env":               {`{"mcpServers": {"a": {"command": "npx", "env": ["A=b"]}}}`, "f: line 1: mcpServers.a.env must be an object, not a list"},
		"NUL in a variable": {`{"mcpServers": {"a": {"command": "npx", "env": {"A": "b\u0000"}}}}`, "mcpServers.a.env.A holds a NUL character: remove it"},
		"server":            {`{"mcpServers": {"a": "npx"}}`, "mcpServers.a must be an object, not text"},
		"alias":             {"a: &x [1]\nb: *x", "f: line 2: the alias *x cannot be imported: write the value out"},
		"merge key":         {"a: &x {b: 1}\nc:\n  <<: *x", "f: line 3: the merge key << cannot be imported: write the fields out"},
		"tag":               {"a: !ruby/object:X {}\nb: !x y", "f: line 2: the YAML tag !x cannot be imported"},
		"infinity":          {toolHive + "  mcpPort: .inf", "f: line 6: the number .inf cannot be imported"},
		"huge port":         {toolHive + "  transport: sse\n  mcpPort: 99999999999999999999", "f: line 7: spec.mcpPort must be a whole number from 0 to 2147483647"},
		"negative port":     {toolHive + "  transport: sse\n  mcpPort: -1", "f: line 7: spec.mcpPort must be a whole number from 0 to 2147483647"},
		"adapter's port":    {toolHive + "  transport: sse\n  mcpPort: 16271", "f: MCPServer a: spec.transport of the MCPServer would be refused"},
		"transport":         {toolHive + "  transport: ws", "f: line 6: spec.transport must be stdio, streamable-http or sse"},
		"quantity":          {toolHive + "  resources: {limits: {cpu: lots}}", "f: line 6: spec.resources: quantities must match"},
		"block":             {toolHive + "  podTemplateSpec: {spec: {tolerations: {a: b}}}", "spec.podTemplateSpec.spec.tolerations: the value must not be object"},
		"image":             {"apiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPServer\nmetadata: {name: a}\nspec: {image: 'a b'}", "f: MCPServer a: spec.image of the MCPServer would be refused: it must be the name of an image"},
		"no spec":           {"apiVersion: kagent.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: a}", "spec.image of the MCPServer would be refused"},
		"no name":           {"apiVersion: kagent.dev/v1alpha1\nkind: MCPServer\nspec: {deployment: {image: a}}", "metadata.name must be set"},
		"colors":            {"apiVersion: kagent.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: \"\\e[31m\"}", "f: MCPServer  [31m: spec.image"},
		"namespace":         {"apiVersion: kagent.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: a, namespace: A}\nspec: {deployment: {image: a}}", "f: line 3: metadata.namespace must be a DNS label"},
		"storage":           {lifecycle + "  source: {containerImage: {ref: x}}\n  config: {port: 1, storage: [{path: /a, source: {type: NFS}}]}", "spec.config.storage[0]: source.type must be ConfigMap, Secret or EmptyDir"},
		"source":            {lifecycle + "  source: {type: Git}\n  config: {port: 1}", "f: line 5: spec.source.type must be ContainerImage"},
		"kmcp transport":    {"apiVersion: kagent.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: a}\nspec: {transportType: http, deployment: {image: a}}", "spec.httpTransport.targetPort must be set"},
		"list":              {"apiVersion: v1\nkind: List\nitems: [7]", "f: line 3: items[0] must be a Kubernetes object, with apiVersion and kind"},
		"deep JSON":         {strings.Repeat(`{"a":`, 200_000), "f: line 1: values are nested more than 100 levels deep"},
		"deep lists":        {strings.Repeat("[", 1<<20), "f: line 1: values are nested more than 100 levels deep"},
		"deep YAML":         {"a: " + strings.Repeat("[", 1<<20), "f: "},
		"deep YAML block":   {strings.Repeat("- ", 1<<19), "f: "},
		"YAML bomb": {"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]",
			"f: line 2: the alias *a cannot be imported"},
		"too large": {strings.Repeat(" ", mostBytes+1), "at most 16777216 can be imported"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := Import([]File{{"f", []byte(test.content)}}, Options{})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got error %v, want %q", err, test.want)
			}
			if len(result.Objects) > 0 {
				t.Error("there is a result despite the error")
			}
		})
	}
}

// The error lists all problems of all files at once.
func TestAllErrorsAtOnce(t *testing.T) {
	_, err := Import([]File{
		{"one", []byte(`{"mcpServers": {"a": {"command": 1}, "b": {"command": "npx", "args": 2}}}`)},
		{"two", []byte("")},
	}, Options{})
	want := "one: line 1: mcpServers.a.command must be text, not a number\n" +
		"one: line 1: mcpServers.b.args must be a list, not a number\n" +
		"two: the file is empty"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestNamespace(t *testing.T) {
	file := File{"f", []byte("apiVersion: kagent.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: a, namespace: b}\nspec: {deployment: {image: a, env: {TOKEN: x}}}")}
	result, err := Import([]File{file}, Options{Namespace: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(encoded(t, result), "namespace: c\n"); got != 2 {
		t.Errorf("got the namespace %d times", got)
	}
	if got := remarks(result); !strings.Contains(got, "metadata.namespace | the namespace becomes c") {
		t.Errorf("got %s", got)
	}
	if _, err := Import([]File{file}, Options{Namespace: "a/b"}); err == nil {
		t.Error("a wrong namespace is taken")
	}
}

// hostile are inputs that an attacker made to do harm, but that can be imported.
var hostile = map[string]string{
	"names that are the same": `{"mcpServers": {"a b": {"command": "npx", "args": ["x"]}, "a_b": {"command": "npx", "args": ["x"]}, "A-B": {"command": "npx", "args": ["x"]}}}`,
	"names of nothing":        `{"mcpServers": {"": {"command": "npx"}, "///": {"command": "npx"}, "日本": {"command": "uvx"}, "-": {"command": "uvx"}}}`,
	"long names":              `{"mcpServers": {"` + strings.Repeat("a", 200) + `": {"command": "npx"}, "` + strings.Repeat("a", 300) + `": {"command": "npx"}, "` + strings.Repeat("-1", 5000) + `": {"command": "npx"}}}`,
	"control characters":      `{"mcpServers": {"a\u001b[31m\nb": {"command": "npx", "args": ["\u001b]0;x\u0007", "a\nb", "\u2028"], "env": {"A": "\u001b\r\n\t", "B\u0000": "x", "C\nD": "y", "E=F": "z"}, "x\u001b": 1}}}`,
	"YAML in values":          `{"mcpServers": {"a": {"command": "npx", "args": ["\n---\nkind: Secret", "- a: b", "!!binary x", "*a", "&a", "0x10", "null", "~", "yes", "1e3", "{{ x }}"], "env": {"A": "---\n", "B": " ", "C": "#"}}}}`,
	"references":              `{"mcpServers": {"a": {"command": "npx", "args": ["$(A)", "$$(A)", "$", "${", "${}", "${input:}", "${input:x}", "${a b}", "${A:-$(B)}"], "env": {"A": "$(A)", "B": "${B:-$$}", "C": "${}", "D": "${input:\u0000}"}}}}`,
	"many variables":          `{"mcpServers": {"a": {"command": "npx", "args": ["--token", "a", "--token", "b", "--token=c", "TOKEN: d", "Token=e", "--` + strings.Repeat("token-", 500) + `=f"], "env": {"ARG_TOKEN": "x", "ARG_TOKEN_2": "y"}}}}`,
	"docker without end":      `{"mcpServers": {"a": {"command": "docker", "args": ["run", "-", "--", "-e"]}, "b": {"command": "docker", "args": ["run", "-é", "x"]}, "c": {"command": "docker", "args": ["run", "-e", "", "-e", "=", "-m", "x", "-u", "x", "--cpus", "", "--pull", "", "a"]}, "d": {"command": "docker", "args": ["run", "-u", "99999999999:1", "-w", "", "-m", "1e9", "a"]}}}`,
	"huge numbers":            `{"mcpServers": {"a": {"command": "npx", "args": [1e999, 123456789012345678901234567890], "env": {"A": 1e999, "B": -0}}}}`,
	"reserved": "apiVersion: kagent.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: a, labels: {'bad key': x, ok: 'bad value', argocd.argoproj.io/instance: x}, annotations: {A: 7, b: null}}\n" +
		"spec: {deployment: {image: a, env: {SLIPWAY_A: b, '': c, '9': d}, labels: {mcp.slipway.dev/server: x}, args: ['--password', x, '--key=$(A)']}}",
	"nulls":              `{"mcpServers": {"a": null, "b": {"command": "npx", "args": null, "env": {"A": null}, "x": null}}}`,
	"a kind with colors": "apiVersion: kagent.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: \"\\e[31m\"}\nspec: {deployment: {image: a}}",
	"nothing in lists":   "apiVersion: toolhive.stacklok.dev/v1beta1\nkind: MCPServer\nmetadata: {name: a}\nspec: {image: a, args: [], env: [], secrets: null, volumes: [], podTemplateSpec: {spec: {containers: [{name: mcp}, {}]}}}",
}

func TestHostileInput(t *testing.T) {
	for name, content := range hostile {
		t.Run(name, func(t *testing.T) {
			if _, err := Import([]File{{"f", []byte(content)}}, Options{}); err != nil && !strings.Contains(content, `\u0000`) {
				t.Fatal(err)
			}
			survive(t, []byte(content))
		})
	}
}

// survive imports anything. What comes out must be what an API server takes, and fit for a terminal.
func survive(t *testing.T, content []byte) {
	t.Helper()
	for _, options := range []Options{{}, {Namespace: "n", WithSecrets: true}} {
		files := []File{{"f", content}, {"f", content}} // the second time, all names are taken
		result, err := Import(files, options)
		if err != nil {
			if strings.ContainsFunc(strings.ReplaceAll(err.Error(), "\n", ""), unicode.IsControl) {
				t.Errorf("control characters in %q", err)
			}
			continue
		}
		if err := errors.Join(refusals(t, result)...); err != nil {
			t.Errorf("an API server would refuse: %v\n%s", err, encoded(t, result))
		}
		said := remarks(result)
		for line := range strings.SplitSeq(said, "\n") {
			if strings.ContainsFunc(line, unicode.IsControl) {
				t.Errorf("control characters in %q", line)
			}
		}
		again, err := Import(files, options)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(encoded(t, result)+said, encoded(t, again)+remarks(again)); diff != "" {
			t.Errorf("the same input has another result:\n%s", diff)
		}
	}
}

func FuzzImport(f *testing.F) {
	for _, file := range cases(f) {
		f.Add(file.Content)
	}
	for _, content := range hostile {
		f.Add([]byte(content))
	}
	f.Fuzz(survive)
}

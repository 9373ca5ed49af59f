package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// imported is the only server of a client's configuration, with its Secret.
func imported(t *testing.T, server string, options Options) (*mcpv1alpha1.MCPServer, map[string]string) {
	t.Helper()
	result, err := Import([]File{{"f", []byte(`{"mcpServers": {"a": ` + server + `}}`)}}, options)
	if err != nil {
		t.Fatal(err)
	}
	var found *mcpv1alpha1.MCPServer
	var secret map[string]string
	for _, object := range result.Objects {
		switch object := object.(type) {
		case *mcpv1alpha1.MCPServer:
			found = object
		case *corev1.Secret:
			secret = object.StringData
		}
	}
	if found == nil {
		t.Fatalf("no server, but %s", remarks(result))
	}
	return found, secret
}

func TestSecretValues(t *testing.T) {
	for name, test := range map[string]struct {
		server            string
		stubs, withValues map[string]string
	}{
		"by name": {
			`{"command": "npx", "env": {"A_TOKEN": "t", "B_KEY": "k", "SECRET": "s", "DB_PASSWORD": "p", "githubToken": "g", "GITHUBTOKEN": "h", "REGION": "r"}}`,
			map[string]string{"A_TOKEN": changeMe, "B_KEY": changeMe, "SECRET": changeMe, "DB_PASSWORD": changeMe, "githubToken": changeMe, "GITHUBTOKEN": changeMe},
			map[string]string{"A_TOKEN": "t", "B_KEY": "k", "SECRET": "s", "DB_PASSWORD": "p", "githubToken": "g", "GITHUBTOKEN": "h"},
		},
		"by value": {
			`{"command": "npx", "env": {"A": "ghp_x", "B": "postgres://u:p@h/d", "C": "Bearer x", "D": "https://h/?api_key=x", "E": "postgres://h/d", "F": "sketch"}}`,
			map[string]string{"A": changeMe, "B": changeMe, "C": changeMe, "D": changeMe},
			map[string]string{"A": "ghp_x", "B": "postgres://u:p@h/d", "C": "Bearer x", "D": "https://h/?api_key=x"},
		},
		"what is no secret": {
			`{"command": "npx", "env": {"MAX_TOKENS": "4096", "USE_TOKEN": "true", "PWD": "/x", "MONKEY": "x", "KEYBOARD": "y", "AUTHOR": "z"}}`,
			nil, nil,
		},
		"a template": {
			`{"command": "npx", "env": {"A": "Token ${env:T}", "B": "mysql://u:p@${env:H}/d"}}`,
			map[string]string{"A": "Token CHANGE_ME", "B": changeMe},
			map[string]string{"A": "Token CHANGE_ME", "B": "mysql://u:p@CHANGE_ME/d"},
		},
		"arguments": {
			`{"command": "npx", "args": ["p", "--api-key=k", "--token", "t", "--url", "https://u:p@h", "--keyboard", "x"]}`,
			map[string]string{"ARG_API_KEY": changeMe, "ARG_TOKEN": changeMe, "ARG_5": changeMe},
			map[string]string{"ARG_API_KEY": "k", "ARG_TOKEN": "t", "ARG_5": "https://u:p@h"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, secret := imported(t, test.server, Options{})
			if diff := cmp.Diff(test.stubs, secret); diff != "" {
				t.Errorf("Secret (-want +got):\n%s", diff)
			}
			for _, variable := range server.Spec.Env {
				if _, isSecret := test.stubs[variable.Name]; isSecret != (variable.ValueFrom != nil) || isSecret && variable.Value != "" {
					t.Errorf("got variable %+v", variable)
				}
			}
			_, secret = imported(t, test.server, Options{WithSecrets: true})
			if diff := cmp.Diff(test.withValues, secret); diff != "" {
				t.Errorf("Secret with values (-want +got):\n%s", diff)
			}
		})
	}
}

// Without WithSecrets, no value that looks like a secret is printed anywhere.
func TestSecretsStayWhereTheyAre(t *testing.T) {
	known := []string{"hunter2", "t0p-s3cr3t", "wk_live_0123456789", "abc.def", "ghp_0123456789", "Bearer abc", "token=abc", "YWJj"}
	var inputs, printed strings.Builder
	for _, file := range cases(t) {
		result, err := Import([]File{file}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		inputs.Write(file.Content)
		printed.WriteString(encoded(t, result) + remarks(result))
	}
	for _, secret := range known {
		if !strings.Contains(inputs.String(), secret) {
			t.Errorf("no input has %s", secret)
		}
		if strings.Contains(printed.String(), secret) {
			t.Errorf("%s is printed", secret)
		}
	}
}

func TestCommands(t *testing.T) {
	for name, test := range map[string]struct {
		server        string
		image         string
		command, args []string
	}{
		"npx":               {`{"command": "npx", "args": ["-y", "p@1.0.0", "x"]}`, npxImage, []string{"npx", "-y", "p@1.0.0"}, []string{"x"}},
		"npx without yes":   {`{"command": "npx", "args": ["p@1.0.0"]}`, npxImage, []string{"npx", "-y", "p@1.0.0"}, nil},
		"npx with flags":    {`{"command": "npx", "args": ["--prefer-offline", "-p", "p@1.0.0", "b"]}`, npxImage, []string{"npx", "-y"}, []string{"--prefer-offline", "-p", "p@1.0.0", "b"}},
		"npx by its path":   {`{"command": "C:\\Program Files\\nodejs\\npx.cmd", "args": ["p"]}`, npxImage, []string{"npx", "-y", "p"}, nil},
		"npx in a shell":    {`{"command": "cmd", "args": ["/C", "npx", "-y", "p"]}`, npxImage, []string{"npx", "-y", "p"}, nil},
		"uvx":               {`{"command": "uvx", "args": ["p==1.0", "x"]}`, uvxImage, []string{"uvx", "p==1.0"}, []string{"x"}},
		"uv tool run":       {`{"command": "/opt/uv", "args": ["tool", "run", "p"]}`, uvxImage, []string{"uv", "tool", "run", "p"}, nil},
		"docker":            {`{"command": "docker", "args": ["run", "--rm", "-i", "x:1", "serve"]}`, "x:1", nil, []string{"serve"}},
		"docker entrypoint": {`{"command": "docker", "args": ["run", "--entrypoint=/a", "x:1"]}`, "x:1", []string{"/a"}, nil},
		"docker unknown":    {`{"command": "docker", "args": ["run", "--gpus", "all", "x:1"]}`, "x:1", nil, nil},
		"no references":     {`{"command": "npx", "args": ["p", "$(A)", "$A", "$$"]}`, npxImage, []string{"npx", "-y", "p"}, []string{"$$(A)", "$A", "$$$$"}},
	} {
		t.Run(name, func(t *testing.T) {
			server, _ := imported(t, test.server, Options{})
			got := []any{server.Spec.Image, server.Spec.Command, server.Spec.Args}
			if diff := cmp.Diff([]any{test.image, test.command, test.args}, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Servers of several files do not take each other's names.
func TestNames(t *testing.T) {
	file := File{"f", []byte(`{"mcpServers": {"Ab": {"command": "npx"}, "` + strings.Repeat("é1", 100) + `": {"command": "npx"}}}`)}
	result, err := Import([]File{file, file, file}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, object := range result.Objects {
		got = append(got, object.(*mcpv1alpha1.MCPServer).Name)
	}
	long := "mcp-1" + strings.Repeat("-1", 29)
	want := []string{"ab", "ab-2", "ab-3", long, long[:61] + "-2", long[:61] + "-3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestComments(t *testing.T) {
	for given, want := range map[string]string{
		"{\"a\": \"//b\", // c\n\"d\": [1, /* , ] */ ], }": `{"a":"//b","d":[1]}`,
		`{"a": "\"/*", "b": "*/,]"}`:                       `{"a":"\"/*","b":"*/,]"}`,
		"/*/ x */ {} // y":                                 `{}`,
		`[1,,]`:                                            "",
		`["a" /* open`:                                     "",
	} {
		var got bytes.Buffer
		if err := json.Compact(&got, withoutComments([]byte(given))); err != nil {
			got.Reset()
		}
		if got.String() != want {
			t.Errorf("%s: got %s, want %s", given, got.String(), want)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestEncodeTellsThatItCannotWrite(t *testing.T) {
	server, _ := imported(t, `{"command": "npx"}`, Options{})
	if err := Encode(brokenWriter{}, Result{Objects: []runtime.Object{server}}); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %v", err)
	}
}

// The validator of these tests must refuse: otherwise they prove nothing.
func TestValidatorRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*mcpv1alpha1.MCPServer)
		want  string
	}{
		"by its schema": {func(s *mcpv1alpha1.MCPServer) { s.Spec.Transport.Type = "ws" }, "spec.transport.type"},
		"by its rules":  {func(s *mcpv1alpha1.MCPServer) { s.Spec.Env = []corev1.EnvVar{{Name: "SLIPWAY_A"}} }, "reserved"},
		"by its lists":  {func(s *mcpv1alpha1.MCPServer) { s.Spec.Env = []corev1.EnvVar{{Name: "A"}, {Name: "A"}} }, "Duplicate value"},
		"by its name":   {func(s *mcpv1alpha1.MCPServer) { s.Name = "a.b" }, "metadata.name must start with a letter"},
	} {
		t.Run(name, func(t *testing.T) {
			server, _ := imported(t, `{"command": "npx"}`, Options{})
			test.spoil(server)
			err := errors.Join(refusals(t, Result{Objects: []runtime.Object{server}})...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

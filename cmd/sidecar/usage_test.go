package main

import (
	"bytes"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
)

// A mistake on the command line gets a short answer there.
func TestCommandLine(t *testing.T) {
	for name, test := range map[string]struct {
		args           []string
		code           int
		stdout, stderr string // what must be there; nothing else may be if it is empty
	}{
		"nothing":        {nil, 2, "", "adapter serve [flags]"},
		"help":           {[]string{"help"}, 0, "adapter serve [flags]", ""},
		"help as a flag": {[]string{"--help"}, 0, "adapter serve [flags]", ""},
		"flags":          {[]string{"serve", "--help"}, 0, "\n  --allowed-origin origin\n", ""},
		"flags, short":   {[]string{"serve", "-h"}, 0, "\n  --verbosity int\n", ""},
		"default":        {[]string{"serve", "--help"}, 0, "(default 127.0.0.1:16270)", ""},
		"second signal":  {[]string{"serve", "--help"}, 0, "A second signal ends it at once", ""},
		"unknown flag":   {[]string{"serve", "--nonsense"}, 2, "", "adapter: flag provided but not defined: --nonsense\nsee adapter serve --help\n"},
		"bad value":      {[]string{"serve", "--warm", "many"}, 2, "", "adapter: invalid value \"many\" for flag --warm: parse error\nsee adapter serve --help\n"},
		"bad boolean":    {[]string{"serve", "--legacy-sse=perhaps"}, 2, "", "adapter: invalid boolean value \"perhaps\" for --legacy-sse: parse error\nsee adapter serve --help\n"},
		"bad choice":     {[]string{"serve", "--transport", "ftp"}, 2, "", "adapter: invalid value \"ftp\" for flag --transport: want sse or stdio or streamable-http\nsee adapter serve --help\n"},
		"choice":         {[]string{"serve", "--help"}, 0, "\n  --isolation processes\n        which processes serve sessions of a stdio server: PerSession or Shared (default PerSession)\n", ""},
		"no value":       {[]string{"serve", "--warm"}, 2, "", "adapter: flag needs an argument: --warm\nsee adapter serve --help\n"},
		"wrong value":    {[]string{"serve", "--warm", "-1", "--", "true"}, 2, "", "adapter: warm is -1, want 0 to 1048576\nsee adapter serve --help\n"},
		"no command":     {[]string{"serve"}, 2, "", "adapter: name the server's command behind --, as in: adapter serve -- node server.js; or give --socket in a pod\nsee adapter serve --help\n"},
		"origin":         {[]string{"serve", "--allowed-origin", "example.com", "--", "true"}, 2, "", "as in https://chat.example.com, or * for all\nsee adapter serve --help\n"},
		"memory":         {[]string{"serve", "--memory-limit", "67108864", "--limit-body-bytes", "1024", "--", "true"}, 2, "", "raise memory-limit to 268435456, or lower limit-line-bytes\nsee adapter serve --help\n"},
		"memory, in pod": {[]string{"serve", "--memory-limit", "67108864", "--limit-body-bytes", "1024", "--settings-dir", "x", "--", "true"}, 2, "", "raise spec.adapter.resources.limits.memory to 268435456, or lower spec.adapter.limits.line\nsee adapter serve --help\n"},
		"sessions":       {[]string{"serve", "--sessions", "old", "--", "true"}, 2, "", "adapter: invalid value \"old\" for flag --sessions: want Auto, Stateful or Stateless, not \"old\"\nsee adapter serve --help\n"},
		"sessions, SSE":  {[]string{"serve", "--sessions", "Stateless", "--transport", "sse", "--upstream", "http://127.0.0.1:1/sse"}, 2, "", "adapter: transport sse: sessions must not be Stateless: that transport has sessions\nsee adapter serve --help\n"},
		"framing, HTTP":  {[]string{"serve", "--framing", "ContentLength", "--transport", "sse", "--upstream", "http://127.0.0.1:1/sse"}, 2, "", "adapter: transport sse: framing and isolation are for stdio servers\nsee adapter serve --help\n"},
		"kinds":          {[]string{"serve", "--help"}, 0, "\n  --sessions kind\n", ""},
		"install where":  {[]string{"install"}, 2, "", "adapter: install: name one directory to put the launcher into, as in: adapter install /slipway\n"},
		"install twice":  {[]string{"install", "a", "b"}, 2, "", "adapter: install: name one directory"},
		"drain what":     {[]string{"drain", "it"}, 2, "", "adapter: drain takes no arguments"},
		"nonsense":       {[]string{"sevre"}, 2, "", "adapter: there is no command \"sevre\"\nsee adapter help\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := exec.CommandContext(t.Context(), sidecarProgram, test.args...)
			var stdout, stderr bytes.Buffer
			program.Stdout, program.Stderr = &stdout, &stderr
			err := program.Run()
			exit := &exec.ExitError{}
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if code := program.ProcessState.ExitCode(); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			for stream, got := range map[string][2]string{"output": {stdout.String(), test.stdout}, "error": {stderr.String(), test.stderr}} {
				if !strings.Contains(got[0], got[1]) || got[1] == "" && got[0] != "" {
					t.Errorf("standard %s is %q, want %q", stream, got[0], got[1])
				}
			}
			if strings.HasSuffix(test.stderr, "--help\n") && strings.Count(stderr.String(), "\n") != 2 {
				t.Errorf("the answer is too long: %s", stderr.String())
			}
		})
	}
}

// The adapter has two ports, and says which one is taken. The manager reads the port out of these
// words.
func TestPortIsTaken(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for _, flag := range []string{"--listen", "--admin-listen"} {
		args := []string{"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", flag, taken.Addr().String(), "--", "true"}
		err := serve(t.Context(), args)
		if err == nil || err.Error() != flag+": listen tcp "+taken.Addr().String()+": bind: address already in use" {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

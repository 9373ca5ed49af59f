package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/launcher"
)

func TestCommandLine(t *testing.T) {
	t.Setenv(socketVariable, filepath.Join(t.TempDir(), "no-host"))
	tests := map[string]struct {
		args   []string
		code   int
		stdout []string // what it must say
		stderr []string
	}{
		"version":        {args: []string{"--version"}, stdout: []string{"launcher "}},
		"help":           {args: []string{"--help"}, stdout: []string{"launcher [flags] -- COMMAND", "-socket path", "-grace time", "launcher run", "drain"}},
		"help on drain":  {args: []string{"drain", "-h"}, stdout: []string{"launcher drain [flags]", "-deadline time", "-socket path"}},
		"no command":     {args: nil, code: exitUsage, stderr: []string{"launcher: no command"}},
		"empty command":  {args: []string{"--", ""}, code: exitError, stderr: []string{"launcher: no command"}},
		"no such flag":   {args: []string{"--no-such-flag"}, code: exitUsage, stderr: []string{"no-such-flag", "Usage:"}},
		"help on run":    {args: []string{"run", "-h"}, stdout: []string{"launcher run -- COMMAND", "127"}},
		"run nothing":    {args: []string{"run", "--"}, code: exitUsage, stderr: []string{"launcher: no command"}},
		"run no name":    {args: []string{"run", "--", ""}, code: exitUsage, stderr: []string{"launcher: no command"}},
		"run, not found": {args: []string{"run", "--", "no-such-program"}, code: exitStart, stderr: []string{`launcher: start command "no-such-program": not found in PATH`}},
		"run, no such file": {
			args: []string{"run", "--", "/no/such/program", "--help"}, code: exitStart,
			stderr: []string{`launcher: start command "/no/such/program": no such file or directory`},
		},
		"run, no program":  {args: []string{"run", "--", "/etc/passwd"}, code: exitStart, stderr: []string{`launcher: start command "/etc/passwd": permission denied`}},
		"drain, no host":   {args: []string{"drain"}},
		"drain, arguments": {args: []string{"drain", "now"}, code: exitUsage, stderr: []string{"launcher: drain takes no arguments"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(test.args, &stdout, &stderr); code != test.code {
				t.Errorf("code %d, want %d", code, test.code)
			}
			for output, wants := range map[*bytes.Buffer][]string{&stdout: test.stdout, &stderr: test.stderr} {
				if len(wants) == 0 && output.Len() > 0 {
					t.Errorf("unexpected output %q", output)
				}
				for _, want := range wants {
					if !strings.Contains(output.String(), want) {
						t.Errorf("output %q lacks %q", output, want)
					}
				}
			}
		})
	}
}

func TestDrainNeverFailsTheEndOfThePod(t *testing.T) {
	dir, err := os.MkdirTemp("", "launcher") //nolint:usetesting // the test's name makes the path too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "s")
	host, err := launcher.Listen(socket, launcher.HostOptions{Drain: func(ctx context.Context) { <-ctx.Done() }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	var stderr bytes.Buffer
	if code := run([]string{"drain", "--socket", socket, "--deadline", "20ms"}, nil, &stderr); code != exitOK {
		t.Errorf("code %d", code)
	}
	if !strings.HasPrefix(stderr.String(), "launcher: wait for the drain: context deadline exceeded") {
		t.Errorf("standard error %q", stderr.String())
	}
}

package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

// What inspect and conformance refuse, with which exit code and advice. No npm package runs: the cluster, the
// user or the command line is in the way.
func TestInspectAndConformance(t *testing.T) {
	namespace := newNamespace(t, "inspected")
	createServers(t, namespace)
	const (
		mayNot = "error: list pods of MCPServer tickets: pods is forbidden: User \"viewer\" cannot list resource \"pods\" in API group \"\" in the namespace \"inspected\"\n" +
			"Ask for the right that is missing: view has those to read, edit has those to call servers and to stop them.\n"
		noPod   = "error: no pod of MCPServer tickets is ready\nSee why: kubectl mcp doctor -n inspected tickets\n"
		install = "Install Node.js from https://nodejs.org, and put it on your PATH.\n"
	)
	for name, test := range map[string]struct {
		node string // what its version is; empty if there is none
		user string
		args []string
		code int
		want string
	}{
		"inspect nothing": {"v24.1.0", kubeconfig, []string{"inspect"}, 1, "error: name a server, as in kubectl mcp inspect tickets\nSee kubectl mcp inspect --help\n"},
		"inspect with arguments": {
			"v24.1.0", kubeconfig, []string{"inspect", "tickets", "--", "--method", "tools/list"}, 1,
			"error: arguments of the Inspector need --cli\nSee kubectl mcp inspect --help\n",
		},
		"inspect without a page, in a browser": {
			"v24.1.0", kubeconfig, []string{"inspect", "tickets", "--cli", "--open"}, 1,
			"error: --cli has no page that --open could open\nLeave out one of them.\n",
		},
		"inspect with few rights":        {"v24.1.0", viewer, []string{"inspect", "tickets"}, 3, mayNot},
		"inspect --cli with few rights":  {"v24.1.0", viewer, []string{"inspect", "tickets", "--cli"}, 3, mayNot},
		"inspect what does not run":      {"v24.1.0", kubeconfig, []string{"inspect", "tickets"}, 4, noPod},
		"inspect --cli with old Node.js": {"v22.18.0", kubeconfig, []string{"inspect", "tickets", "--cli"}, 1, "error: @modelcontextprotocol/inspector needs Node.js 22.19 or newer, and yours is 22.18\n" + install},

		"test nothing": {"v24.1.0", kubeconfig, []string{"conformance"}, 1, "error: name a server, as in kubectl mcp conformance tickets\nSee kubectl mcp conformance --help\n"},
		"test an unknown revision": {
			"v24.1.0", kubeconfig, []string{"conformance", "tickets", "--requirements", "2024-11-05"}, 1,
			"error: the suite has no requirements of revision \"2024-11-05\"\nUse one of: 2025-11-25, 2026-07-28\n",
		},
		"test all and some": {
			"v24.1.0", kubeconfig, []string{"conformance", "tickets", "--all", "--scenario", "ping"}, 1,
			"error: --all runs every scenario, and --scenario only some\nLeave out one of them.\n",
		},
		"test in another format": {"v24.1.0", kubeconfig, []string{"conformance", "tickets", "-o", "wide"}, 1, "error: unknown output format \"wide\"\nUse -o json or yaml.\n"},
		"test without Node.js": {
			"", kubeconfig, []string{"conformance", "tickets"}, 1,
			"error: @modelcontextprotocol/conformance needs Node.js 22 or newer, and there is no node on your PATH\n" + install,
		},
		"test with old Node.js, as JSON": {
			"v20.20.2", kubeconfig, []string{"conformance", "tickets", "-o", "json"}, 1,
			`{"error":"@modelcontextprotocol/conformance needs Node.js 22 or newer, and yours is 20.20","next":"` + strings.TrimSuffix(install, "\n") + `","code":1}` + "\n",
		},
		"test with few rights":   {"v24.1.0", viewer, []string{"conformance", "tickets"}, 3, mayNot},
		"test what does not run": {"v24.1.0", kubeconfig, []string{"conformance", "tickets"}, 4, noPod},
		"test what is not there": {
			"v24.1.0", kubeconfig, []string{"conformance", "absent"}, 4,
			"error: get MCPServer absent: mcpservers.mcp.slipway.dev \"absent\" not found\nTo see all servers, run: kubectl mcp list -A\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			useNode(t, test.node)
			got := kubectlMCP(t, test.user, table.Screen{}, append([]string{"-n", namespace}, test.args...)...)
			if got.code != test.code || got.out != "" {
				t.Errorf("exit code %d, want %d; output %q", got.code, test.code, got.out)
			}
			if diff := cmp.Diff(test.want, got.errOut); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// useNode has nothing but a Node.js of a version on the PATH, and an npx that nothing runs.
func useNode(t *testing.T, version string) {
	t.Helper()
	programs := t.TempDir()
	t.Setenv("PATH", programs)
	if version == "" {
		return
	}
	for name, script := range map[string]string{"node": "echo " + version, "npx": "echo the test does not run this; exit 99"} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

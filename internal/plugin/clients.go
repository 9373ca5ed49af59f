package plugin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/bearer"
)

// printClient prints how a client on this machine reaches a server.
func (e *environment) printClient(name string, of *mcpv1alpha1.MCPServer, port int) error {
	namespace, server := of.Namespace, of.Name
	at := fmt.Sprintf("http://127.0.0.1:%d/mcp", port)
	if port == 0 {
		return fail(exitUnexpected, "Name the port that kubectl mcp connect is to use.", "--print needs a port that stays")
	}
	raw, err := e.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	program, start, err := e.startOf(cmp.Or(*e.flags.Context, raw.CurrentContext), namespace, server)
	if err != nil {
		return err
	}
	clients := map[string]func() (string, error){
		"claude-code": func() (string, error) {
			added := fmt.Sprintf("claude mcp add %s -- %s\n", shellWords([]string{server}), shellWords(append([]string{program}, start...)))
			if wantsToken(of) || e.account != "" {
				return added, nil // not every system keeps a port of the machine private at an address that stays
			}
			return added + fmt.Sprintf("# or, while %s connect -n %s %s --port %d runs:\nclaude mcp add --transport http %s %s\n", e.called(), namespace, shellWords([]string{server}), port, shellWords([]string{server}), at), nil
		},
		"claude-desktop": func() (string, error) {
			return e.configuration("claude_desktop_config.json", "mcpServers", server, map[string]any{"command": program, "args": start})
		},
		"cursor": func() (string, error) {
			return e.configuration("~/.cursor/mcp.json", "mcpServers", server, map[string]any{"command": program, "args": start})
		},
		"vscode": func() (string, error) {
			return e.configuration(".vscode/mcp.json", "servers", server, map[string]any{"type": "stdio", "command": program, "args": start})
		},
	}
	write, ok := clients[name]
	if !ok {
		return fail(exitUnexpected, "Use one of: "+strings.Join(slices.Sorted(maps.Keys(clients)), ", "), "client %q is not known", name)
	}
	out, err := write()
	if err != nil {
		return err
	}
	if wantsToken(of) && e.account == "" {
		_, _ = fmt.Fprintf(e.ErrOut, "The server wants a token. Use --%s here, or have the client set %s.\n", accountFlag, bearer.Variable)
	}
	_, err = fmt.Fprint(e.Out, out)
	return err
}

// startOf is the command line of a client that starts processes. Such a client has neither the variables nor
// the PATH of the user's shell, so it names the program and the kubeconfig, and the context of today, whatever
// the user chooses tomorrow.
func (e *environment) startOf(context, namespace, server string) (program string, args []string, err error) {
	if program, err = os.Executable(); err != nil {
		return "", nil, fmt.Errorf("find the program: %w", err)
	}
	args = []string{"connect", "--context", context, "-n", namespace, server, "--stdio"}
	if e.account != "" {
		args = append(args, "--"+accountFlag, e.account)
	}
	config := *e.flags.KubeConfig
	if config == "" {
		config = os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	}
	if paths := filepath.SplitList(config); len(paths) == 1 {
		if config, err = filepath.Abs(paths[0]); err != nil {
			return "", nil, fmt.Errorf("find the kubeconfig: %w", err)
		}
		args = append(args, "--kubeconfig", config)
	}
	return program, args, nil
}

// configuration is a part of a file of a client, whose name is told apart from it.
func (e *environment) configuration(file, list, server string, entry map[string]any) (string, error) {
	encoded, err := json.MarshalIndent(map[string]any{list: map[string]any{server: entry}}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("print the configuration: %w", err)
	}
	_, err = fmt.Fprintf(e.ErrOut, "For %s:\n", file)
	return string(encoded) + "\n", err
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// shellWords are words as a POSIX shell reads them. The name of a context can have any character.
func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		if quoted[i] = word; !plainWord.MatchString(word) {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

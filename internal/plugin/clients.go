package plugin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// printClient prints how a client on this machine reaches a server.
func (e *environment) printClient(name, server string, port int) error {
	namespace, err := e.namespace()
	if err != nil {
		return err
	}
	at := fmt.Sprintf("http://127.0.0.1:%d/mcp", port)
	if port == 0 {
		return fail(exitUnexpected, "Name the port that kubectl mcp connect is to use.", "--print needs a port that stays")
	}
	raw, err := e.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	// The context of today, whatever the user chooses tomorrow.
	start := []string{cmp.Or(e.name, usualName), "connect", "--context", cmp.Or(*e.flags.Context, raw.CurrentContext), "-n", namespace, server, "--stdio"}
	clients := map[string]func() (string, error){
		"claude-code": func() (string, error) {
			return fmt.Sprintf("claude mcp add %s -- kubectl %s\n", shellWords([]string{server}), shellWords(start)) +
				fmt.Sprintf("# or, while %s connect -n %s %s --port %d runs:\nclaude mcp add --transport http %s %s\n", e.called(), namespace, shellWords([]string{server}), port, shellWords([]string{server}), at), nil
		},
		"claude-desktop": func() (string, error) {
			return e.configuration("claude_desktop_config.json", "mcpServers", server, map[string]any{"command": "kubectl", "args": start})
		},
		"cursor": func() (string, error) {
			return e.configuration("~/.cursor/mcp.json", "mcpServers", server, map[string]any{"command": "kubectl", "args": start})
		},
		"vscode": func() (string, error) {
			return e.configuration(".vscode/mcp.json", "servers", server, map[string]any{"type": "stdio", "command": "kubectl", "args": start})
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
	_, err = fmt.Fprint(e.Out, out)
	return err
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

package adapter

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// Replicas runs adapters as the pods of one server: they share its keys, and reach each other at the same port of
// addresses of the loopback network. The arguments are for all of them.
func Replicas(t *testing.T, binary string, number int, args ...string) (all []Process) {
	t.Helper()
	key := adapterapi.NewKey()
	keys := files(t, map[string]string{adapterapi.KeysCurrent: key.Encode(), adapterapi.KeysAccepted: ""})
	settings, err := adapterapi.Settings{Version: adapterapi.SettingsVersion, Generation: 1}.Encode()
	if err != nil {
		t.Fatalf("make settings: %v", err)
	}
	access, err := adapterapi.Access{
		Version: adapterapi.AccessVersion, Generation: 1, Mode: adapterapi.AccessNone, Audit: adapterapi.AccessAudit{Level: adapterapi.AuditNone, WhenFull: adapterapi.AuditDrop},
	}.Sign(key)
	if err != nil {
		t.Fatalf("sign access: %v", err)
	}
	documents := files(t, map[string]string{adapterapi.SettingsFile: settings.Text, adapterapi.AccessFile: access.Text})
	port := freePort(t, number)
	for n := range number {
		address := fmt.Sprintf("127.0.0.%d", n+1)
		all = append(all, Run(t, binary, slices.Concat([]string{
			"--keys-dir", keys, "--settings-dir", documents, "--pod-uid", fmt.Sprintf("00000000-0000-4000-8000-%012d", n+1), "--pod-ip", address,
			"--peer-listen", net.JoinHostPort(address, port),
		}, args)...))
	}
	return all
}

func files(t *testing.T, contents map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatalf("write file: %v", err)
		}
	}
	return dir
}

// freePort is one that is free at each of the addresses. They are closed again: the adapters listen there by
// themselves.
func freePort(t *testing.T, number int) string {
	t.Helper()
	var port string
	for n := range number {
		wanted := port
		if n == 0 {
			wanted = "0"
		}
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(fmt.Sprintf("127.0.0.%d", n+1), wanted))
		if err != nil {
			t.Fatalf("find a free port: %v", err)
		}
		defer func() { _ = l.Close() }()
		port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	}
	return port
}

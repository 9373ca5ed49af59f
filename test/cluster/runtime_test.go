package main

import (
	"bytes"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
)

// pull lets a pod's image come from a registry on the bridge, which has no TLS.
func (h *harness) pull() {
	h.Helper()
	node := strings.TrimSpace(h.kubectl("get", "nodes", "--output", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`))
	listener, err := (&net.ListenConfig{}).Listen(h.Context(), "tcp", net.JoinHostPort(node, "0"))
	if err != nil {
		h.Fatal(err)
	}
	server := httptest.NewUnstartedServer(registry.New())
	_ = server.Listener.Close() // It is on the loopback, where containerd expects no TLS anyway.
	server.Listener = listener
	server.Start()
	defer server.Close()
	address := listener.Addr().String()
	h.run("trust", address)

	ref := address + "/testpod:1"
	if err := imagebuild.Push(h.Context(), ref, h.image()); err != nil {
		h.Fatal(err)
	}
	manifest, err := os.ReadFile(h.testdata("pulled.yaml"))
	if err != nil {
		h.Fatal(err)
	}
	path := filepath.Join(h.TempDir(), "pulled.yaml")
	if err := os.WriteFile(path, bytes.ReplaceAll(manifest, []byte("IMAGE"), []byte(ref)), 0o600); err != nil {
		h.Fatal(err)
	}
	h.kubectl("apply", "--filename", path)
	h.kubectl("wait", "pod/pulled", "--for=condition=Ready", "--timeout=50s")
	h.kubectl("delete", "pod/pulled")
}

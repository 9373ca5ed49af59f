package controller

import (
	"net"
	"net/http"
	"strconv"
	"testing"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/sidecar/admin"
	"github.com/slipway-mcp/slipway/test/hang"
)

// standIn answers for the adapter of simulated pods, as a test wants it to.
func standIn(t *testing.T, address string, clients http.HandlerFunc) {
	t.Helper()
	serve(t, net.JoinHostPort(address, strconv.Itoa(mcpv1alpha1.AdapterPort)), clients)
	administrators := http.NewServeMux()
	administrators.HandleFunc(admin.PathCatalog, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"ready":true}`))
	})
	serve(t, net.JoinHostPort(address, strconv.Itoa(mcpv1alpha1.AdapterAdminPort)), administrators)
}

func serve(t *testing.T, address string, handler http.Handler) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: hang.Guard}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

// Package listen serves the small programs of the benchmark on a free port of the
// loopback, and says where that is as the adapter does.
package listen

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
)

// Serve serves until the process ends. It returns only by ending the process, under the
// program's name.
func Serve(name string, handler http.Handler) {
	err := serve(handler)
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	os.Exit(1)
}

func serve(handler http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Printf("{\"url\":\"http://%s/mcp\"}\n", listener.Addr())
	return http.Serve(listener, handler)
}

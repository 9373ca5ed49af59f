// Command matrix is an MCP server of the official SDK that has every feature of the
// protocol, for the matrix of eras: on standard input and output, where it speaks both
// eras, or over HTTP in one of four ways, where it speaks one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	http := flag.String("http", "", "serve at a free port of loopback, which is said on the first line of output: legacy, json, modern or sse")
	state := flag.String("state", "", "file that keeps what calls did, which processes may share")
	flag.Parse()
	if err := run(*http, *state); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

func run(mode, state string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	events := journal(state)
	if mode == "" {
		// Closed input and a signal end the server without an error.
		if err := newServer(events, nil).Run(ctx, &mcp.StdioTransport{}); err != nil && ctx.Err() == nil {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	}
	handler, err := newHandler(mode, events)
	if err != nil {
		return err
	}
	return serve(ctx, handler)
}

// newHandler speaks one era. The SDK's transports with sessions refuse the stateless
// revision themselves, but the one without sessions answers initialize.
func newHandler(mode string, events journal) (http.Handler, error) {
	legacy := slices.DeleteFunc(mcp.SupportedProtocolVersions(), func(version string) bool { return version >= modernVersion })
	switch mode {
	case "legacy":
		server := newServer(events, legacy)
		return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil), nil
	case "json":
		server := newServer(events, legacy)
		return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{JSONResponse: true}), nil
	case "modern":
		server := newServer(events, []string{modernVersion})
		return refuseInitialize(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
			&mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})), nil
	case "sse":
		server := newServer(events, legacy)
		return mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return server }, nil), nil
	}
	return nil, fmt.Errorf("there is no way %q to serve", mode)
}

func serve(ctx context.Context, handler http.Handler) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Println("http://" + listener.Addr().String() + "/mcp")
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() {
		<-ctx.Done()
		_ = server.Close() // streams would keep a graceful end waiting
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// Command kubectl-mcp is the kubectl plugin of Slipway: kubectl mcp.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/slipway-mcp/slipway/internal/plugin"
)

func main() {
	// A program that a command has started ends with it, however the command is told to end.
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as it is by nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, stop) // so that a second Ctrl+C ends the program at once
	code := plugin.Main(ctx)
	stop()
	os.Exit(code)
}

// Command kubectl-mcp is the kubectl plugin of Slipway: kubectl mcp.
package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/slipway-mcp/slipway/internal/plugin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // so that a second Ctrl+C ends the program at once
	code := plugin.Main(ctx)
	stop()
	os.Exit(code)
}

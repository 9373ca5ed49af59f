// Command sidecar will be the adapter that MCP clients talk to: the data plane
// of Slipway.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/slipway-mcp/slipway/internal/version"
)

func main() {
	showVersion := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *showVersion {
		fmt.Println("sidecar", version.Get())
		return
	}
	fmt.Fprintln(os.Stderr, "sidecar: serving MCP clients is not built yet; only --version works.")
	os.Exit(2)
}

package main

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/test/doctable"
)

var update = flag.Bool("update", false, "write the table into the documentation")

func TestFlagsInTheDocumentation(t *testing.T) {
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	bindFlags(flags)
	kubeconfig := flag.Lookup("kubeconfig") // of controller-runtime
	if kubeconfig == nil {
		t.Fatal("there is no --kubeconfig")
	}
	flags.Var(kubeconfig.Value, kubeconfig.Name, kubeconfig.Usage)
	var table strings.Builder
	table.WriteString("| Flag | Meaning |\n|---|---|\n")
	flags.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		fmt.Fprintf(&table, "| `%s` | %s |\n", strings.TrimSpace("--"+f.Name+" "+strings.ToUpper(value)), doctable.Cell(usage))
	})
	doctable.Check(t, "../../docs/reference/configuration.md", "flags", table.String(), "go test ./cmd/manager -update", *update)
}

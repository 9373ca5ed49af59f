// Command chart brings the generated files of the Helm chart in line with their sources:
//
//	config/crd, config/rbac        -> templates/crd.yaml, managerrole.yaml, userroles.yaml
//	config/prometheus/alerts.yaml  -> files/alerts.yaml
//	internal/config                -> config in values.schema.json
//	values.yaml                    -> README.md
//
// It runs in the root of the repository. What it writes are templates, so it needs no Helm.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

const chart = "charts/slipway"

func main() {
	if err := generate("."); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// generate writes all files. It renders them first, so that a mistake changes none.
func generate(root string) error {
	files := map[string][]byte{}
	for name, render := range map[string]func(root string) ([]byte, error){
		"templates/crd.yaml":         renderCRD,
		"templates/managerrole.yaml": renderManagerRole,
		"templates/userroles.yaml":   renderUserRoles,
		"files/alerts.yaml":          renderAlerts,
		"values.schema.json":         renderSchema,
		"README.md":                  renderReadme,
	} {
		content, err := render(root)
		if err != nil {
			return fmt.Errorf("render %s: %w", name, err)
		}
		files[name] = content
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, chart, name), content, 0o644); err != nil { //nolint:gosec // it is a file of the repository
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

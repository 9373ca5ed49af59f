package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

const intro = `<!-- Written by make generate. Change values.yaml or hack/chart/readme.go instead. -->
# Slipway Helm chart

Installs the Slipway operator, which runs MCP servers as ` + "`MCPServer`" + ` objects.
No chart and no images are published yet. From a checkout:

` + "```sh" + `
make push IMG_PREFIX=registry.example/slipway VERSION=v0.1.0
helm install slipway charts/slipway --namespace slipway-system --create-namespace \
  --set image.prefix=registry.example/slipway --set image.tag=v0.1.0
` + "```" + `

[Install](../../docs/install.md) explains the choices, [Upgrade](../../docs/upgrade.md) how to upgrade and uninstall, and
[Monitoring](../../docs/monitoring.md) the monitors and alerts. A cluster can have one installation.

## Values

| value | default | description |
|---|---|---|
`

// renderReadme returns a page with a row for each value.
func renderReadme(root string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(root, chart, "values.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read values: %w", err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, fmt.Errorf("parse values: %w", err)
	}
	var out bytes.Buffer
	out.WriteString(intro)
	if err := writeRows(&out, "", document.Content[0]); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// writeRows writes a row for each value below a node that has a description. A value without one must have values
// below it that have.
func writeRows(out *bytes.Buffer, path string, mapping *yaml.Node) error {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := path + key.Value
		description := ""
		for line := range strings.Lines(key.HeadComment) {
			if text, found := strings.CutPrefix(line, "# -- "); found {
				description = strings.TrimSpace(text)
			}
		}
		if description == "" {
			if value.Kind != yaml.MappingNode || len(value.Content) == 0 {
				return fmt.Errorf("%s has no comment that begins with two dashes", name)
			}
			if err := writeRows(out, name+".", value); err != nil {
				return err
			}
			continue
		}
		var content any
		if err := value.Decode(&content); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		asJSON, err := json.Marshal(content)
		if err != nil {
			return fmt.Errorf("print %s: %w", name, err)
		}
		fmt.Fprintf(out, "| `%s` | `%s` | %s |\n", name, asJSON, strings.ReplaceAll(description, "|", `\|`))
	}
	return nil
}

package main

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// pluginName is that of the krew plugin. krew's naming guide refuses names as general as mcp; the program answers
// to both.
const pluginName = "slipway"

// krewPlugin is the manifest of a krew plugin, apiVersion krew.googlecontainertools.github.com/v1alpha2.
type krewPlugin struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        krewMetadata `json:"metadata"`
	Spec            krewSpec     `json:"spec"`
}

type krewMetadata struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Caveats          string         `json:"caveats"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector metav1.LabelSelector `json:"selector"`
	URI      string               `json:"uri"`
	SHA256   string               `json:"sha256"`
	Bin      string               `json:"bin"`
}

func writeKrew(opts options, archives []archive) error {
	plugin := krewPlugin{
		TypeMeta: metav1.TypeMeta{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin"},
		Metadata: krewMetadata{Name: pluginName},
		Spec: krewSpec{
			Version:          opts.version,
			Homepage:         "https://github.com/slipway-mcp/slipway",
			ShortDescription: "Run, call and debug MCP servers",
			Description: "Lists MCP servers with the cause and the remedy of each that is not ready, searches and calls\n" +
				"their tools, connects the MCP client on your machine to a server in the cluster, follows logs of\n" +
				"single sessions, and turns the configuration of a desktop client into MCPServer manifests.\n\n" +
				"It needs a cluster in which the Slipway operator runs.\n",
			Caveats: "The command is \"kubectl slipway\". Pages that say \"kubectl mcp\" mean the same program.\n" +
				"For completion in your shell, link the program as kubectl_complete-slipway into a directory of your PATH.\n",
		},
	}
	for _, made := range archives {
		plugin.Spec.Platforms = append(plugin.Spec.Platforms, krewPlatform{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"os": made.platform.os, "arch": made.platform.arch}},
			URI:      opts.downloads + "/" + opts.version + "/" + made.name,
			SHA256:   made.sum,
			Bin:      made.program,
		})
	}
	content, err := yaml.Marshal(plugin)
	if err != nil {
		return fmt.Errorf("encode krew manifest: %w", err)
	}
	return opts.publish(pluginName+".yaml", content)
}

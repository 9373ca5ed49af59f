package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"sigs.k8s.io/yaml"
)

// kindOptions are what users choose of a kind cluster.
type kindOptions struct {
	nodes   int    // 1, or 2: a control plane and a worker; 0 for a new cluster with one, or for the one that is up
	image   string // instead of the published image and of our own; may be empty
	version string // of Kubernetes, such as v1.36; may be empty
}

func kindOptionsOf(getenv func(string) string) (kindOptions, error) {
	options := kindOptions{image: getenv("KIND_IMAGE"), version: getenv("KUBE_VERSION")}
	if text := getenv("NODES"); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil || number < 1 || number > 2 {
			return options, fmt.Errorf("NODES=%s: want 1 or 2", text)
		}
		options.nodes = number
	}
	return options, nil
}

// kindConfig is kind's configuration.
type kindConfig map[string]any

func readConfig(repository string) (kindConfig, error) {
	text, err := os.ReadFile(filepath.Join(repository, "test", "cluster", "kind.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read configuration of kind: %w", err)
	}
	config := kindConfig{}
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		return nil, fmt.Errorf("read configuration of kind: %w", err)
	}
	if config.controlPlane() == nil || config.image() == "" || config["networking"] != nil {
		return nil, errors.New("read configuration of kind: want one node with an image, and no networking")
	}
	return config, nil
}

// controlPlane is the only node; nil if there is another number of them.
func (c kindConfig) controlPlane() map[string]any {
	nodes, _ := c["nodes"].([]any)
	if len(nodes) != 1 {
		return nil
	}
	node, _ := nodes[0].(map[string]any)
	return node
}

func (c kindConfig) image() string {
	image, _ := c.controlPlane()["image"].(string)
	return image
}

// schedulable keeps kubeadm from reserving the control plane for itself. Specs that need two nodes have pods on both.
const schedulable = `kind: InitConfiguration
nodeRegistration:
  taints: []
`

// writeConfig writes the configuration of this cluster, and returns its path.
func (k *kind) writeConfig() (string, error) {
	config, err := readConfig(k.repository)
	if err != nil {
		return "", err
	}
	if k.options.nodes > 1 {
		node := config.controlPlane()
		patches, _ := node["kubeadmConfigPatches"].([]any)
		node["kubeadmConfigPatches"] = append(patches, schedulable)
		config["nodes"] = []any{node, map[string]any{"role": "worker"}}
	}
	if k.hasOwnEngine() {
		address, err := k.engine.Address()
		if err != nil {
			return "", err
		}
		// Without a port, kind looks for a free one on the machine, which does not have the address.
		config["networking"] = map[string]any{"apiServerAddress": address.String(), "apiServerPort": 6443}
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("encode configuration of kind: %w", err)
	}
	path := filepath.Join(k.dir, "kind.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", fmt.Errorf("write configuration of kind: %w", err)
	}
	return path, nil
}

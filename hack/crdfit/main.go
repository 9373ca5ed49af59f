// Command crdfit makes generated CRDs fit for users, in place: it tightens the pattern of quantities,
// and drops volume plugins that Kubernetes has removed, or replaced by CSI drivers.
//
// The pattern that Kubernetes' types carry lets strings through that its own parser
// refuses, such as "1e1.5". One stored object with such a string cannot be decoded,
// and with it fails every list and watch of the kind: a user who can write one object
// in one namespace would stop the manager for all.
//
// Volumes are a third of a CRD that has them, and a CRD must fit into the annotation of a
// client-side kubectl apply.
package main

import (
	"errors"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

const (
	loose = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	tight = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$`
)

// plugins are the volume plugins that no new server should use.
var plugins = []string{
	"awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "flexVolume", "flocker", "gcePersistentDisk", "gitRepo",
	"glusterfs", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume",
}

func main() {
	for _, file := range os.Args[1:] {
		if err := rewrite(file); err != nil {
			fmt.Fprintln(os.Stderr, "crdfit:", err)
			os.Exit(1)
		}
	}
}

func rewrite(file string) error {
	before, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read CRD: %w", err)
	}
	after, err := fit(before)
	if err != nil {
		return fmt.Errorf("fit CRD %s: %w", file, err)
	}
	if err := os.WriteFile(file, after, 0o644); err != nil { //nolint:gosec // it is a file of the repository
		return fmt.Errorf("write CRD: %w", err)
	}
	return nil
}

// fit returns the CRD as users get it. It fails if there was nothing to do: then Kubernetes' types
// have changed, and this program is not needed or does not know them any more.
func fit(crd []byte) ([]byte, error) {
	var content map[string]any
	if err := yaml.Unmarshal(crd, &content); err != nil {
		return nil, err
	}
	f := &fitting{}
	f.walk(content)
	if f.patterns == 0 {
		return nil, errors.New("there is no quantity of the pattern that is known")
	}
	if f.plugins%len(plugins) != 0 || f.plugins == 0 {
		return nil, fmt.Errorf("%d volume plugins are there, want %d in each list of volumes", f.plugins, len(plugins))
	}
	return yaml.Marshal(content)
}

// fitting counts what was changed.
type fitting struct{ patterns, plugins int }

func (f *fitting) walk(value any) {
	switch value := value.(type) {
	case map[string]any:
		if value["pattern"] == loose {
			value["pattern"] = tight
			f.patterns++
		}
		f.dropPlugins(value)
		for _, member := range value {
			f.walk(member)
		}
	case []any:
		for _, item := range value {
			f.walk(item)
		}
	}
}

// dropPlugins drops the plugins from the properties of a volume, which are known by having both
// emptyDir and all of them.
func (f *fitting) dropPlugins(properties map[string]any) {
	if _, ok := properties["emptyDir"]; !ok {
		return
	}
	for _, plugin := range plugins {
		if _, ok := properties[plugin]; ok {
			delete(properties, plugin)
			f.plugins++
		}
	}
}

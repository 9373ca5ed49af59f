package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// adapterVariable is where the manager's Deployment names the image of adapters.
const adapterVariable = "SLIPWAY_ADAPTER_IMAGE"

// writeManifests writes install.yaml, its CustomResourceDefinitions as crds.yaml, and the images that it names as
// images.txt.
func writeManifests(ctx context.Context, opts options) error {
	path, err := filepath.Abs(filepath.Join(opts.out, "install.yaml"))
	if err != nil {
		return fmt.Errorf("find install.yaml: %w", err)
	}
	command := exec.CommandContext(ctx, "hack/installer.sh", opts.prefix, opts.version, path) //nolint:gosec // The user of this command chose the arguments.
	command.Dir = opts.root
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("write install.yaml: %w\n%s", err, output)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read install.yaml: %w", err)
	}
	definitions, images, err := split(content)
	if err != nil {
		return fmt.Errorf("read install.yaml: %w", err)
	}
	// The script makes the file with the rights of its umask.
	return errors.Join(
		os.Chmod(path, 0o644), //nolint:gosec // Build output is for everybody to read.
		opts.publish("crds.yaml", definitions),
		opts.publish("images.txt", []byte(strings.Join(images, "\n")+"\n")),
	)
}

// split finds the CustomResourceDefinitions and the names of images in what installs the manager.
func split(content []byte) (definitions []byte, images []string, err error) {
	var found [][]byte
	// kustomize indents all text of values, so no value has this line.
	for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return nil, nil, fmt.Errorf("decode object: %w", err)
		}
		switch kind.Kind {
		case "CustomResourceDefinition":
			found = append(found, bytes.TrimSuffix(document, []byte("\n")))
		case "Deployment":
			var deployment appsv1.Deployment
			if err := yaml.Unmarshal(document, &deployment); err != nil {
				return nil, nil, fmt.Errorf("decode Deployment: %w", err)
			}
			images = append(images, imagesOf(deployment)...)
		}
	}
	if len(found) == 0 || len(images) == 0 {
		return nil, nil, fmt.Errorf("it has %d CustomResourceDefinitions and names %d images", len(found), len(images))
	}
	slices.Sort(images)
	return append(bytes.Join(found, []byte("\n---\n")), '\n'), slices.Compact(images), nil
}

func imagesOf(deployment appsv1.Deployment) (images []string) {
	for _, container := range deployment.Spec.Template.Spec.Containers {
		images = append(images, container.Image)
		for _, variable := range container.Env {
			if variable.Name == adapterVariable {
				images = append(images, variable.Value)
			}
		}
	}
	return images
}

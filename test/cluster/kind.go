package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-mcp/slipway/test/cluster/internal/containerd"
	"github.com/slipway-mcp/slipway/test/cluster/internal/kubeapi"
	"github.com/slipway-mcp/slipway/test/cluster/internal/statedir"
)

const (
	// kindName is the name of the cluster, as in kind.yaml.
	kindName = "slipway"
	// kindNode is the name of the container that is its only node.
	kindNode = kindName + "-control-plane"
	// kindCerts has a directory for each registry, as in kind.yaml.
	kindCerts = "/etc/containerd/certs.d"
)

// kind is a cluster whose node is a container of a Docker engine.
type kind struct {
	repository string
	dir        string
	run        func(ctx context.Context, dir string, output io.Writer, name string, args ...string) error
}

// kind runs the version of the tool that the repository pins.
func (k *kind) kind(ctx context.Context, output io.Writer, args ...string) error {
	command := append([]string{"tool", "-modfile=hack/tools/go.mod", "kind"}, args...)
	if err := k.run(ctx, k.repository, output, "go", command...); err != nil {
		return fmt.Errorf("kind %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

func (k *kind) exists(ctx context.Context) (bool, error) {
	var clusters bytes.Buffer
	if err := k.kind(ctx, &clusters, "get", "clusters"); err != nil {
		return false, err
	}
	return slices.Contains(strings.Fields(clusters.String()), kindName), nil
}

func (k *kind) Up(ctx context.Context) error {
	if err := statedir.Claim(k.dir, providerKind); err != nil {
		return err
	}
	exists, err := k.exists(ctx)
	if err != nil {
		return err
	}
	if exists {
		if err := k.kind(ctx, os.Stdout, "export", "kubeconfig", "--name", kindName, "--kubeconfig", k.Kubeconfig()); err != nil {
			return err
		}
		return k.Status(ctx)
	}
	return k.kind(ctx, os.Stdout, "create", "cluster", "--name", kindName,
		"--config", filepath.Join("test", "cluster", "kind.yaml"), "--kubeconfig", k.Kubeconfig(), "--wait", "3m")
}

func (k *kind) Down(ctx context.Context) error {
	if err := k.kind(ctx, os.Stdout, "delete", "cluster", "--name", kindName, "--kubeconfig", k.Kubeconfig()); err != nil {
		return err
	}
	return statedir.Remove(k.dir)
}

func (k *kind) Status(ctx context.Context) error {
	return printStatus(ctx, os.Stdout, k.Kubeconfig())
}

func (k *kind) Load(ctx context.Context, archives ...string) error {
	for _, archive := range archives {
		// kind runs in the repository's root, which need not be where we are.
		path, err := filepath.Abs(archive)
		if err != nil {
			return fmt.Errorf("load %s: %w", archive, err)
		}
		if err := k.kind(ctx, os.Stdout, "load", "image-archive", path, "--name", kindName); err != nil {
			return err
		}
	}
	return nil
}

// Trust writes the file in the way that kind documents for local registries.
func (k *kind) Trust(ctx context.Context, registry string) error {
	hosts, err := containerd.PlainHTTP(registry)
	if err != nil {
		return err
	}
	const write = `mkdir -p "$1" && printf %s "$2" >"$1/` + containerd.HostsFile + `"`
	if err := k.node(ctx, "sh", "-c", write, "trust", kindCerts+"/"+registry, hosts); err != nil {
		return fmt.Errorf("trust %s: %w", registry, err)
	}
	return nil
}

// Kill ends the first process of a container as a crash would.
func (k *kind) Kill(ctx context.Context, container string) error {
	args, err := containerd.KillArgs(container)
	if err != nil {
		return err
	}
	if err := k.node(ctx, append([]string{"ctr", "--namespace", containerd.Namespace}, args...)...); err != nil {
		return fmt.Errorf("kill container %s: %w", container, err)
	}
	return nil
}

// Freeze stops the process of the API server where it is, or lets it go on. The kubelet restarts it when it
// has not answered for more than a minute.
func (k *kind) Freeze(ctx context.Context, frozen bool) error {
	signal := "CONT"
	if frozen {
		signal = "STOP"
	}
	return k.node(ctx, "pkill", "--exact", "--signal", signal, "kube-apiserver")
}

// node runs a program on the node.
func (k *kind) node(ctx context.Context, command ...string) error {
	if err := k.run(ctx, k.repository, os.Stdout, "docker", append([]string{"exec", kindNode}, command...)...); err != nil {
		return fmt.Errorf("run %s on node %s: %w", command[0], kindNode, err)
	}
	return nil
}

func (k *kind) Kubeconfig() string { return filepath.Join(k.dir, "kubeconfig") }

// printStatus asks any cluster for its version and its nodes.
func printStatus(ctx context.Context, out io.Writer, kubeconfig string) error {
	api, err := kubeapi.Connect(kubeconfig)
	if err != nil {
		return err
	}
	version, err := api.Version(ctx)
	if err != nil {
		return err
	}
	ready, total, err := api.NodesReady(ctx)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "cluster: Kubernetes %s at %s, %d of %d nodes ready\n", version, api.Host, ready, total)
	if total == 0 || ready < total {
		return fmt.Errorf("%d of %d nodes are ready", ready, total)
	}
	return nil
}

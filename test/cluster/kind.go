package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/test/cluster/internal/containerd"
	"github.com/slipway-mcp/slipway/test/cluster/internal/engine"
	"github.com/slipway-mcp/slipway/test/cluster/internal/hostlocal"
	"github.com/slipway-mcp/slipway/test/cluster/internal/kubeapi"
	"github.com/slipway-mcp/slipway/test/cluster/internal/statedir"
)

const (
	// kindName is the name of the cluster, as in kind.yaml.
	kindName = "slipway"
	// kindControlPlane is the name of the container that is its first node.
	kindControlPlane = kindName + "-control-plane"
	// kindCerts has a directory for each registry, as in kind.yaml.
	kindCerts = "/etc/containerd/certs.d"
)

// kind is a cluster whose nodes are containers of a Docker engine.
type kind struct {
	repository string
	dir        string
	options    kindOptions
	run        func(ctx context.Context, dir string, output io.Writer, name string, args ...string) error
	// engine is for machines without a Docker engine.
	engine *engine.Engine
}

// needEngine has all commands talk to our own engine, if the cluster has one.
func (k *kind) needEngine() error {
	if !k.hasOwnEngine() {
		return nil
	}
	return k.engine.Environment()
}

// startEngine starts an engine of our own, unless the user has one.
func (k *kind) startEngine(ctx context.Context) error {
	switch {
	case k.engine == nil:
		return nil
	case k.engine.Exists():
	case dockerAnswers(ctx):
		return nil
	case k.isOnUsersEngine() || os.Getenv("DOCKER_HOST") != "":
		return errors.New("the Docker engine does not answer: start it")
	}
	claimed := statedir.Provider(k.dir) != ""
	if err := statedir.Claim(k.dir, providerKind); err != nil {
		return err
	}
	err := k.engine.Up(ctx)
	if err != nil && !claimed && !k.engine.Exists() {
		return errors.Join(err, statedir.Remove(k.dir)) // another provider may have it
	}
	return err
}

func (k *kind) hasOwnEngine() bool { return k.engine != nil && k.engine.Exists() }

// usersEngine is the name of a file that says that the user's Docker engine has the cluster.
const usersEngine = "users-engine"

func (k *kind) isOnUsersEngine() bool {
	_, err := os.Stat(filepath.Join(k.dir, usersEngine))
	return err == nil
}

// claim marks the directory as that of a kind cluster, and says which engine has it.
func (k *kind) claim() error {
	if err := statedir.Claim(k.dir, providerKind); err != nil {
		return err
	}
	if k.hasOwnEngine() {
		return nil
	}
	if err := os.WriteFile(filepath.Join(k.dir, usersEngine), nil, 0o600); err != nil {
		return fmt.Errorf("claim state directory: %w", err)
	}
	return nil
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

// nodes are the containers that are the nodes of the cluster.
func (k *kind) nodes(ctx context.Context) ([]string, error) {
	var names bytes.Buffer
	if err := k.kind(ctx, &names, "get", "nodes", "--name", kindName); err != nil {
		return nil, err
	}
	return strings.Fields(names.String()), nil
}

func (k *kind) Up(ctx context.Context) error {
	// Before as much as a lock is put into a directory that is not ours.
	if foreign, err := statedir.Foreign(k.dir); err != nil || foreign {
		return errors.Join(err, fmt.Errorf("%s holds files that are not a cluster's: it stays as it is", k.dir))
	}
	release, err := statedir.Acquire(ctx, k.dir, os.Stdout)
	if err != nil {
		return err
	}
	defer release()
	if err := k.startEngine(ctx); err != nil {
		return err
	}
	exists, err := k.exists(ctx)
	if err != nil {
		return err
	}
	if exists {
		return k.resume(ctx)
	}
	// Before the directory is claimed: if there is no image, another provider may have it.
	image, err := k.image(ctx)
	if err != nil {
		return err
	}
	if err := k.claim(); err != nil {
		return err
	}
	return k.create(ctx, image)
}

func (k *kind) create(ctx context.Context, image string) error {
	config, err := k.writeConfig()
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(os.Stdout, "progress: create the nodes, about 1 min left")
	err = k.kind(ctx, os.Stdout, "create", "cluster", "--name", kindName, "--image", image,
		"--config", config, "--kubeconfig", k.Kubeconfig(), "--wait", "3m")
	if err != nil {
		// What is left of it would look like a cluster to the next command.
		return errors.Join(err, k.delete(context.WithoutCancel(ctx)))
	}
	return k.awaitReady(ctx)
}

func (k *kind) delete(ctx context.Context) error {
	return k.kind(ctx, os.Stdout, "delete", "cluster", "--name", kindName, "--kubeconfig", k.Kubeconfig())
}

// resume starts nodes that do not run, and waits until all are ready.
func (k *kind) resume(ctx context.Context) error {
	if err := k.claim(); err != nil {
		return err
	}
	nodes, err := k.nodes(ctx)
	if err != nil {
		return err
	}
	if k.options.nodes > 0 && k.options.nodes != len(nodes) {
		return fmt.Errorf("NODES=%d: a cluster with %d is up: take it down first", k.options.nodes, len(nodes))
	}
	if err := k.docker(ctx, io.Discard, append([]string{"start"}, nodes...)...); err != nil {
		return err
	}
	if err := k.kind(ctx, os.Stdout, "export", "kubeconfig", "--name", kindName, "--kubeconfig", k.Kubeconfig()); err != nil {
		return err
	}
	if err := k.awaitReady(ctx); err != nil {
		return err
	}
	return k.hasVersion(ctx)
}

// hasVersion returns an error if the user asks for another version of Kubernetes than that of the cluster.
func (k *kind) hasVersion(ctx context.Context) error {
	api, err := kubeapi.Connect(k.Kubeconfig())
	if err != nil {
		return err
	}
	has, err := api.Version(ctx)
	if err != nil {
		return err
	}
	if asked := k.options.version; asked != "" && has != asked && !strings.HasPrefix(has, asked+".") {
		return fmt.Errorf("KUBE_VERSION=%s: a cluster with %s is up: take it down first", asked, has)
	}
	return nil
}

// readyPatience is for nodes to become ready: those that kind does not wait for, or all of them after the machine or a
// node was restarted.
const readyPatience = 2 * time.Minute

// awaitReady waits until all nodes are ready and names can be resolved.
func (k *kind) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	for {
		var status bytes.Buffer
		err := k.isReady(ctx, &status)
		if err == nil {
			_, err = os.Stdout.Write(status.Bytes())
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the nodes of the kind cluster: %w", err)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (k *kind) isReady(ctx context.Context, status io.Writer) error {
	if err := printStatus(ctx, status, k.Kubeconfig()); err != nil {
		return err
	}
	api, err := kubeapi.Connect(k.Kubeconfig())
	if err != nil {
		return err
	}
	return api.DeploymentAvailable(ctx, "kube-system", "coredns")
}

func (k *kind) Down(ctx context.Context) error {
	if _, err := os.Stat(k.dir); errors.Is(err, fs.ErrNotExist) {
		fmt.Printf("cluster: there is none in %s\n", k.dir)
		return nil
	}
	release, err := statedir.Acquire(ctx, k.dir, os.Stdout)
	if err != nil {
		return err
	}
	defer release()
	switch {
	case k.hasOwnEngine():
		// The engine ends with all that it has.
		if err := k.engine.Down(ctx); err != nil {
			return err
		}
	case k.isOnUsersEngine():
		if err := k.delete(ctx); err != nil {
			return err
		}
	}
	return statedir.Remove(k.dir)
}

func (k *kind) Status(ctx context.Context) error {
	if k.hasOwnEngine() {
		if err := k.engine.Running(); err != nil {
			return err
		}
	}
	return printStatus(ctx, os.Stdout, k.Kubeconfig())
}

func (k *kind) Load(ctx context.Context, archives ...string) error {
	if err := k.needEngine(); err != nil {
		return err
	}
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
	return k.onEveryNode(ctx, func(node string) error {
		if err := k.node(ctx, node, "sh", "-c", write, "trust", kindCerts+"/"+registry, hosts); err != nil {
			return fmt.Errorf("trust %s: %w", registry, err)
		}
		return nil
	})
}

// Mirror writes or removes the file, in the way of Trust.
func (k *kind) Mirror(ctx context.Context, registry, mirror string) error {
	hosts, err := containerd.Mirror(registry, mirror)
	if err != nil {
		return err
	}
	const change = `rm -rf "$1" && if [ -n "$2" ]; then mkdir -p "$1" && printf %s "$2" >"$1/` + containerd.HostsFile + `"; fi`
	return k.onEveryNode(ctx, func(node string) error {
		if err := k.node(ctx, node, "sh", "-c", change, "mirror", kindCerts+"/"+registry, hosts); err != nil {
			return fmt.Errorf("mirror %s: %w", registry, err)
		}
		return nil
	})
}

// Kill ends the first process of a container as a crash would.
func (k *kind) Kill(ctx context.Context, container string) error {
	args, err := containerd.KillArgs(container)
	if err != nil {
		return err
	}
	return k.onNodeOf(ctx, container, append([]string{"ctr", "--namespace", containerd.Namespace}, args...))
}

// Cut drops all packets between the pod of a container and an address, or everything, or lets them pass again.
func (k *kind) Cut(ctx context.Context, container, address string, isCut bool) error {
	command, err := containerd.Cut(container, address, isCut)
	if err != nil {
		return err
	}
	return k.onNodeOf(ctx, container, append([]string{"env", "CTR=ctr"}, command...))
}

// kindAddresses is where the network of kind keeps the addresses of a node's pods.
const kindAddresses = "/run/cni-ipam-state/kindnet"

// Pin has the next pod of a node get an address, if the address is free.
func (k *kind) Pin(ctx context.Context, node, address string) error {
	if err := k.needEngine(); err != nil {
		return err
	}
	before, err := hostlocal.Before(address)
	if err != nil {
		return err
	}
	const write = `cd "$1" && printf %s "$2" >` + hostlocal.LastFile
	return k.node(ctx, node, "sh", "-c", write, "pin", kindAddresses, before)
}

// onNodeOf runs a program on the node that has a container. It fails on all others.
func (k *kind) onNodeOf(ctx context.Context, container string, command []string) error {
	var failures []error
	err := k.onEveryNode(ctx, func(node string) error {
		failures = append(failures, k.node(ctx, node, command...))
		return nil
	})
	if err != nil || slices.Contains(failures, nil) {
		return err
	}
	return fmt.Errorf("find the node of container %s: %w", container, errors.Join(failures...))
}

// Freeze stops the process of the API server where it is, or lets it go on. The kubelet restarts it when it
// has not answered for more than a minute.
func (k *kind) Freeze(ctx context.Context, frozen bool) error {
	if err := k.needEngine(); err != nil {
		return err
	}
	signal := "CONT"
	if frozen {
		signal = "STOP"
	}
	return k.node(ctx, kindControlPlane, "pkill", "--exact", "--signal", signal, "kube-apiserver")
}

// SetNode kills the container of a node, as a loss of power would, or starts it again.
func (k *kind) SetNode(ctx context.Context, node string, running bool) error {
	if err := k.needEngine(); err != nil {
		return err
	}
	nodes, err := k.nodes(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(nodes, node) {
		return fmt.Errorf("node %q: the cluster has %s", node, strings.Join(nodes, ", "))
	}
	command := "kill"
	if running {
		command = "start"
	}
	return k.docker(ctx, io.Discard, command, node)
}

func (k *kind) onEveryNode(ctx context.Context, do func(node string) error) error {
	if err := k.needEngine(); err != nil {
		return err
	}
	nodes, err := k.nodes(ctx)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if err := do(node); err != nil {
			return err
		}
	}
	return nil
}

// node runs a program on a node.
func (k *kind) node(ctx context.Context, node string, command ...string) error {
	if err := k.docker(ctx, os.Stdout, append([]string{"exec", node}, command...)...); err != nil {
		return fmt.Errorf("run %s on node %s: %w", command[0], node, err)
	}
	return nil
}

func (k *kind) docker(ctx context.Context, output io.Writer, args ...string) error {
	if err := k.run(ctx, k.repository, output, "docker", args...); err != nil {
		return fmt.Errorf("docker %s: %w", args[0], err)
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

// Command cluster takes a Kubernetes cluster for development and tests up and down.
//
// The variable CLUSTER chooses what it is: kind (a node in Docker), local (plain
// processes, for machines without a container engine) or existing (whatever
// KUBECONFIG refers to). Without it: the one that is up, else kind when a Docker
// engine answers, else local.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
	"github.com/slipway-mcp/slipway/test/cluster/internal/engine"
	"github.com/slipway-mcp/slipway/test/cluster/internal/local"
	"github.com/slipway-mcp/slipway/test/cluster/internal/statedir"
)

const usage = `Usage: go run ./test/cluster COMMAND

  up                 take the cluster up, or repair it
  down               take it down and remove what it left
  status             print how it is; exit code 1 when it is not healthy
  load TAR...        make images available to its nodes
  trust HOST:PORT    let its nodes pull from a registry that speaks plain HTTP
  mirror REGISTRY HOST:PORT
                     let its nodes pull the images of a registry, such as docker.io, from
                     another one that speaks plain HTTP, or, with the word none, from itself
  kill CONTAINER-ID  kill the first process of a container, as a crash would
  cut CONTAINER-ID ADDRESS
                     drop all packets between the container's pod and an address,
                     or, with the word everything, all that come to the pod or leave it
  heal CONTAINER-ID ADDRESS
                     let them pass again
  pin NODE ADDRESS   have the next pod of a node get an address, if the address is free
  freeze             stop the API server where it is, so that it answers no request
  thaw               let it go on
  stop-node NODE     kill a node, as a loss of power would (kind)
  start-node NODE    start it again
  kubeconfig         print the path of its kubeconfig

Environment: CLUSTER=kind|local|existing, SLIPWAY_CLUSTER_DIR, KUBECONFIG (existing), KUBE_VERSION (such as v1.36),
  NODES=2 (kind: a control plane and a worker), KIND_IMAGE (kind: another image for its nodes)
`

// provider is a way to have a cluster.
type provider interface {
	Up(ctx context.Context) error
	Down(ctx context.Context) error
	Status(ctx context.Context) error
	Load(ctx context.Context, archives ...string) error
	Trust(ctx context.Context, registry string) error
	// Mirror has the nodes pull the images of a registry from another one, until the mirror is "none".
	Mirror(ctx context.Context, registry, mirror string) error
	Kill(ctx context.Context, container string) error
	// Cut drops all packets between the pod of a container and an address, or everything, or lets them pass again.
	Cut(ctx context.Context, container, address string, isCut bool) error
	// Pin has the next pod of a node get an address, if the address is free.
	Pin(ctx context.Context, node, address string) error
	// Freeze stops the process of the API server where it is, or lets it go on.
	Freeze(ctx context.Context, frozen bool) error
	// SetNode kills a node, as a loss of power would, or starts it again.
	SetNode(ctx context.Context, node string, running bool) error
	Kubeconfig() string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if err := checkArgs(args); err != nil {
		fmt.Fprint(os.Stderr, usage)
		return err
	}
	// A user's PATH on Debian lacks ip and iptables.
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin"); err != nil {
		return fmt.Errorf("extend PATH: %w", err)
	}
	dir, err := stateDir(os.Getenv, os.Geteuid())
	if err != nil {
		return err
	}
	name, err := choose(args[0], os.Getenv("CLUSTER"), statedir.Provider(dir), func() bool { return dockerAnswers(ctx) })
	if err != nil {
		return err
	}
	return (&choice{dir: dir, asked: os.Getenv("CLUSTER"), newProvider: newProvider, out: os.Stdout}).execute(ctx, name, args)
}

// choice executes commands by the provider that was chosen.
type choice struct {
	dir, asked  string
	newProvider func(name, dir string) (provider, error)
	out         io.Writer
}

// execute executes a command. A user who has not asked for kind gets a local cluster if kind has no image for its nodes.
func (c *choice) execute(ctx context.Context, name string, args []string) error {
	cluster, err := c.newProvider(name, c.dir)
	if err != nil {
		return err
	}
	err = execute(ctx, name, cluster, args)
	if !errors.Is(err, errNoImage) || c.asked != "" || statedir.Provider(c.dir) != "" || ctx.Err() != nil {
		return err
	}
	// hack/demo.sh shows notes.
	_, _ = fmt.Fprintf(c.out, "note: a Docker engine answers, but %v, so this is a local cluster instead of kind\n", err)
	return c.execute(ctx, providerLocal, args)
}

// checkArgs makes sure that a command has the arguments that it needs.
func checkArgs(args []string) error {
	if len(args) == 0 {
		return errors.New("one command is needed")
	}
	given := len(args) - 1
	wanted, takes := arguments[args[0]]
	switch {
	case args[0] == "load" && given == 0:
		return errors.New("load needs archives")
	case takes && given != wanted.number:
		return fmt.Errorf("%s needs %s", args[0], wanted.words)
	case args[0] != "load" && !takes && given > 0:
		return fmt.Errorf("%s takes no arguments", args[0])
	}
	return nil
}

// arguments are those of commands that take a fixed number of them.
var arguments = map[string]struct {
	number int
	words  string
}{
	"trust": {1, "one HOST:PORT"}, "kill": {1, "one container's id"}, "cut": {2, "one container's id and one address"}, "heal": {2, "one container's id and one address"},
	"mirror": {2, "the name of one registry and one HOST:PORT"}, "pin": {2, "the name of one node and one address"}, "stop-node": {1, "the name of one node"}, "start-node": {1, "the name of one node"},
}

func newProvider(name, dir string) (provider, error) {
	switch name {
	case providerKind:
		root, err := repository()
		if err != nil {
			return nil, err
		}
		options, err := kindOptionsOf(os.Getenv)
		if err != nil {
			return nil, err
		}
		// kind runs in the root of the repository.
		if dir, err = filepath.Abs(dir); err != nil {
			return nil, fmt.Errorf("find state directory: %w", err)
		}
		own := &engine.Engine{Dir: filepath.Join(dir, "engine"), Repository: root}
		return &kind{repository: root, dir: dir, options: options, run: runCommand, engine: own}, nil
	case providerExisting:
		return &existing{kubeconfig: os.Getenv("KUBECONFIG"), out: os.Stdout}, nil
	default:
		root, err := repository()
		if err != nil {
			return nil, err
		}
		return local.New(dir, root, os.Stdout)
	}
}

func execute(ctx context.Context, name string, cluster provider, args []string) error {
	switch args[0] {
	case "up":
		if err := cluster.Up(ctx); err != nil {
			return err
		}
		if name != providerExisting {
			fmt.Printf("export KUBECONFIG=%s\n", cluster.Kubeconfig())
		}
		return nil
	case "down":
		return cluster.Down(ctx)
	case "status":
		return cluster.Status(ctx)
	case "load":
		if err := cluster.Load(ctx, args[1:]...); err != nil {
			return err
		}
		printImages(os.Stdout, args[1:])
		return nil
	case "kubeconfig":
		return printKubeconfig(name, cluster.Kubeconfig(), os.Stdout)
	default:
		return disturb(ctx, cluster, args)
	}
}

// disturb runs the commands that are there for tests.
func disturb(ctx context.Context, cluster provider, args []string) error {
	switch args[0] {
	case "trust":
		return cluster.Trust(ctx, args[1])
	case "mirror":
		return cluster.Mirror(ctx, args[1], args[2])
	case "kill":
		return cluster.Kill(ctx, args[1])
	case "cut", "heal":
		return cluster.Cut(ctx, args[1], args[2], args[0] == "cut")
	case "pin":
		return cluster.Pin(ctx, args[1], args[2])
	case "freeze", "thaw":
		return cluster.Freeze(ctx, args[0] == "freeze")
	case "stop-node", "start-node":
		return cluster.SetNode(ctx, args[1], args[0] == "start-node")
	default:
		fmt.Fprint(os.Stderr, usage)
		return fmt.Errorf("unknown command %q", args[0])
	}
}

// printImages prints the names that pods find the images of archives under.
func printImages(out io.Writer, archives []string) {
	for _, archive := range archives {
		names, err := imagebuild.Names(archive)
		switch {
		case err != nil:
			_, _ = fmt.Fprintln(out, err)
		case len(names) == 0:
			_, _ = fmt.Fprintf(out, "%s does not name its image: save the image by its name\n", archive)
		}
		for _, name := range names {
			_, _ = fmt.Fprintln(out, "image", name)
		}
	}
}

// printKubeconfig prints the path for a shell to use. Without a cluster the path is
// of no use to a program.
func printKubeconfig(name, path string, out io.Writer) error {
	if name != providerExisting { // which has a list of files, or kubectl's default
		if _, err := os.Stat(path); err != nil {
			return errors.New("there is no cluster: take one up with \"go run ./test/cluster up\"")
		}
	}
	_, err := fmt.Fprintln(out, path)
	return err
}

// repository finds the root of the checkout from the working directory upwards.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "hack", "kube", "build.sh")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find repository: run this inside the checkout of slipway")
		}
		dir = parent
	}
}

// dockerAnswers tells whether there is a Docker engine, and not only its client.
func dockerAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, "docker", "info", "--format", "{{.ServerVersion}}")
	command.WaitDelay = time.Second
	command.Stdout, command.Stderr = io.Discard, io.Discard
	return command.Run() == nil
}

// runCommand runs a program for the user to watch; its output is wanted or shown. The error has the last line that the
// program writes to standard error: with CLUSTER unset, it is the reason for another provider.
func runCommand(ctx context.Context, dir string, output io.Writer, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	last := &lastLine{}
	command.Dir, command.Stdout, command.Stderr = dir, output, io.MultiWriter(os.Stderr, last)
	// Killed outright, a script could not clean up.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	err := command.Run()
	if text := last.String(); err != nil && text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// lastLine keeps the last line that is written to it.
type lastLine struct{ text []byte }

// mostOfLine bounds what is kept of a line.
const mostOfLine = 1 << 10

// Write implements io.Writer.
func (l *lastLine) Write(p []byte) (int, error) {
	l.text = append(l.text, p...)
	if i := bytes.LastIndexByte(bytes.TrimSpace(l.text), '\n'); i >= 0 {
		l.text = l.text[i+1:]
	}
	l.text = l.text[:min(len(l.text), mostOfLine)]
	return len(p), nil
}

func (l *lastLine) String() string { return string(bytes.TrimSpace(l.text)) }

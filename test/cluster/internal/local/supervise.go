package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/test/cluster/internal/machine"
	"github.com/slipway-mcp/slipway/test/cluster/internal/proc"
)

// grace is how long a component may take to end by itself.
const grace = 5 * time.Second

// record is what is known about a component's process.
type record struct {
	proc.Identity
	// Fingerprint is that of the command and of the files it has read.
	Fingerprint string    `json:"fingerprint"`
	Started     time.Time `json:"started"`
}

func (c *Cluster) recordPath(name string) string { return c.path("run", name+".json") }

// record returns a zero record, of a process that is not alive, when there is none.
func (c *Cluster) record(name string) (record, error) {
	content, err := os.ReadFile(c.recordPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, fmt.Errorf("read record of %s: %w", name, err)
	}
	var r record
	if err := json.Unmarshal(content, &r); err != nil {
		return record{}, fmt.Errorf("read record of %s: %w", name, err)
	}
	return r, nil
}

// start makes sure that the component runs with its present command and files.
// It returns when it was started, which may be long ago.
func (c *Cluster) start(ctx context.Context, name string) (started time.Time, err error) {
	component := c.components()[name]
	fingerprint, err := component.fingerprint()
	if err != nil {
		return started, err
	}
	recorded, err := c.record(name)
	if err != nil {
		return started, err
	}
	if recorded.Alive() && recorded.Fingerprint == fingerprint {
		return recorded.Started, nil
	}
	// What runs now is outdated, or was started by a command that died before
	// it could write that down.
	if err := c.stop(name)(ctx); err != nil {
		return started, fmt.Errorf("stop %s: %w", name, err)
	}
	now := time.Now()
	identity, err := c.launch(ctx, component)
	if err != nil {
		return started, fmt.Errorf("start %s: %w", name, err)
	}
	content, err := json.Marshal(record{Identity: identity, Fingerprint: fingerprint, Started: now})
	if err != nil {
		return started, fmt.Errorf("encode record of %s: %w", name, err)
	}
	return now, writeFile(c.recordPath(name), content)
}

func (c *Cluster) launch(ctx context.Context, component component) (proc.Identity, error) {
	for _, address := range component.addresses {
		if err := machine.CheckPort(ctx, address); err != nil {
			return proc.Identity{}, err
		}
	}
	path, err := exec.LookPath(component.path)
	if err != nil {
		return proc.Identity{}, err
	}
	return proc.Start(proc.Command{
		Path: path,
		Args: component.args,
		Env:  []string{"PATH=" + machine.Path, "HOME=" + c.Dir},
		Dir:  c.Dir,
		Log:  c.log(component.name),
	})
}

// alive returns an error that leads to the log when the component is dead.
func (c *Cluster) alive(name string) func() error {
	return func() error {
		recorded, err := c.record(name)
		if err != nil {
			return err
		}
		if !recorded.Alive() {
			return fmt.Errorf("%s has ended", name)
		}
		return nil
	}
}

// SetNode always fails: the only node of a local cluster is this machine.
func (c *Cluster) SetNode(_ context.Context, node string, _ bool) error {
	return fmt.Errorf("node %s: a local cluster has one node, which is this machine: use CLUSTER=kind NODES=2", node)
}

// Freeze stops the process of the API server where it is, or lets it go on.
func (c *Cluster) Freeze(_ context.Context, frozen bool) error {
	recorded, err := c.record("kube-apiserver")
	if err != nil {
		return err
	}
	signal := syscall.SIGCONT
	if frozen {
		signal = syscall.SIGSTOP
	}
	if err := recorded.Signal(signal); err != nil {
		return fmt.Errorf("signal kube-apiserver: %w", err)
	}
	return nil
}

// waitFor waits for a condition that a component brings about.
func (c *Cluster) waitFor(ctx context.Context, name string, deadline time.Duration, condition func(context.Context) error) error {
	if err := wait(ctx, deadline, condition, c.alive(name)); err != nil {
		return &componentError{log: c.log(name), err: err}
	}
	return nil
}

func (c component) fingerprint() (string, error) {
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%q\n%q\n", c.path, c.args)
	for _, file := range c.files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read configuration of %s: %w", c.name, err)
		}
		_, _ = fmt.Fprintf(hash, "%q\n", content)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// isComponent recognizes a component of this cluster by its command line: the
// program's name, and an argument that refers to the state directory.
func (c *Cluster) isComponent(names ...string) func(argv []string) bool {
	return func(argv []string) bool {
		if !slices.Contains(names, filepath.Base(argv[0])) {
			return false
		}
		return slices.ContainsFunc(argv[1:], func(arg string) bool {
			_, value, _ := strings.Cut(arg, "=")
			return under(arg, c.Dir) || under(value, c.Dir)
		})
	}
}

func under(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

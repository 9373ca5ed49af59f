// Package engine runs a Docker engine for machines that have none, and takes it away again.
//
// The engine has a network namespace, a mount namespace, a cgroup and directories of its own, so that its rules,
// addresses and mounts meet no others. A pair of virtual interfaces and one route connect the machine with it.
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/test/cluster/internal/machine"
	"github.com/slipway-mcp/slipway/test/cluster/internal/proc"
)

// The names of what the engine has on the machine.
const (
	Cgroup = "slipway-kind"
	Link   = "slipway-kind0"
	inner  = "machine0" // the other end of the link
)

// Engine is a Docker engine of our own.
type Engine struct {
	// Dir is for its files: the socket, the log and the images.
	Dir string
	// Repository is the checkout, which has the source of the runtime.
	Repository string
}

// record is what has to be known to take the engine away, and to find it.
type record struct {
	BootID  string            `json:"bootID"`
	Network netip.Prefix      `json:"network"`
	Sysctls map[string]string `json:"sysctls"`
	// PassedOn are the cgroup controllers that were enabled; null on cgroup v1.
	PassedOn []string `json:"passedOn"`
	Tools    string   `json:"tools"`
	// HadOpt says that the machine had /opt/containerd, which containerd makes and dockerd cannot move.
	HadOpt bool `json:"hadOpt"`
}

// opt is a directory that containerd makes, and what it makes in there. They stay empty.
var opt = []string{"/opt/containerd/bin", "/opt/containerd/lib", "/opt/containerd"}

const (
	recordFile = "record.json"
	pidFile    = "docker.pid"
	execRoot   = "run"
)

func (e *Engine) path(parts ...string) string {
	return filepath.Join(append([]string{e.Dir}, parts...)...)
}

// Exists reports whether the engine was taken up and not down.
func (e *Engine) Exists() bool {
	_, err := os.Stat(e.path(recordFile))
	return err == nil
}

// Running returns an error if dockerd has died. Its containers may live on, so the cluster may still answer.
func (e *Engine) Running() error {
	running, err := e.processes("dockerd")
	if err == nil && len(running) == 0 {
		err = errors.New("the Docker engine of the cluster does not run: make cluster-up starts it")
	}
	return err
}

// Environment has programs of this process talk to the engine.
func (e *Engine) Environment() error {
	r, err := e.read()
	if err != nil {
		return err
	}
	if err := os.Setenv("DOCKER_HOST", "unix://"+e.path("docker.sock")); err != nil {
		return fmt.Errorf("set environment: %w", err)
	}
	// The machine may have another version of the client.
	if err := os.Setenv("PATH", filepath.Join(r.Tools, "usr", "bin")+":"+os.Getenv("PATH")); err != nil {
		return fmt.Errorf("set environment: %w", err)
	}
	return nil
}

// Address is where the machine reaches ports that containers publish.
func (e *Engine) Address() (netip.Addr, error) {
	r, err := e.read()
	if err != nil {
		return netip.Addr{}, err
	}
	return r.inside(), nil
}

// Up starts the engine, unless it runs.
func (e *Engine) Up(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("no Docker engine answers, and to start one of our own needs root")
	}
	if _, err := machine.InstallPackages(ctx); err != nil {
		return err
	}
	r, err := e.prepare(ctx)
	if err != nil {
		return err
	}
	if err := e.connect(ctx, r); err != nil {
		return err
	}
	daemon, err := e.daemon(ctx, r)
	if err != nil {
		return err
	}
	if err := e.Environment(); err != nil {
		return err
	}
	if err := e.wait(ctx, daemon); err != nil {
		return err
	}
	return e.accept(ctx)
}

// prepare finds out what the engine needs to know of the machine, once for each boot, before it changes anything.
func (e *Engine) prepare(ctx context.Context) (*record, error) {
	boot, err := proc.BootID()
	if err != nil {
		return nil, err
	}
	r, err := e.read()
	switch {
	case err == nil && r.BootID == boot:
		return r, nil
	case err == nil: // a reboot has undone everything but files
		r.BootID = boot
	case errors.Is(err, fs.ErrNotExist):
		if err := refuseOthers(); err != nil {
			return nil, err
		}
		_, missing := os.Lstat(opt[len(opt)-1])
		r = &record{BootID: boot, HadOpt: missing == nil}
		if r.Network, err = freeNetwork(ctx); err != nil {
			return nil, err
		}
	default:
		return nil, err
	}
	if r.Sysctls, err = machine.Sysctls(); err != nil {
		return nil, err
	}
	if r.PassedOn, err = machine.PassedOn(); err != nil {
		return nil, err
	}
	if r.Tools, err = e.tools(ctx); err != nil {
		return nil, err
	}
	return r, e.write(r)
}

// refuseOthers returns an error if the machine has what another engine of ours would have: its names are the same for
// every directory.
func refuseOthers() error {
	groups, err := machine.CgroupDirs(Cgroup)
	if err != nil {
		return err
	}
	if len(groups) > 0 || machine.BridgeExists(Link) {
		return fmt.Errorf("interface %s or cgroup %s exists already: a kind cluster of another directory is up, or a clean-up was not completed", Link, Cgroup)
	}
	return nil
}

func (e *Engine) tools(ctx context.Context) (string, error) {
	build := exec.CommandContext(ctx, filepath.Join(e.Repository, "hack", "kindnode", "build.sh"), "--tools")
	build.Stderr = os.Stderr
	output, err := build.Output()
	if err != nil {
		return "", fmt.Errorf("fetch Docker engine: %w", err)
	}
	return strings.TrimSpace(string(output)), nil
}

func (e *Engine) read() (*record, error) {
	text, err := os.ReadFile(e.path(recordFile))
	if err != nil {
		return nil, fmt.Errorf("read record of the Docker engine: %w", err)
	}
	r := new(record)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read record of the Docker engine: %w", err)
	}
	return r, nil
}

func (e *Engine) write(r *record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode record of the Docker engine: %w", err)
	}
	if err := os.MkdirAll(e.path("bin"), 0o700); err != nil {
		return fmt.Errorf("make directory of the Docker engine: %w", err)
	}
	next := e.path(recordFile + ".new")
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return fmt.Errorf("write record of the Docker engine: %w", err)
	}
	if err := os.Rename(next, e.path(recordFile)); err != nil {
		return fmt.Errorf("write record of the Docker engine: %w", err)
	}
	return nil
}

// daemon returns dockerd, and starts it if it does not run. What is left of one that died would be in its way.
func (e *Engine) daemon(ctx context.Context, r *record) (proc.Identity, error) {
	running, err := e.processes("dockerd")
	if err != nil {
		return proc.Identity{}, err
	}
	if len(running) > 0 {
		return running[0], nil
	}
	left, err := e.processes("containerd", shim)
	if err != nil {
		return proc.Identity{}, err
	}
	if err := proc.Stop(ctx, 0, left...); err != nil {
		return proc.Identity{}, fmt.Errorf("stop what is left of the Docker engine: %w", err)
	}
	// Containers outlive their engine, and runc cannot start one again in a cgroup that still has processes.
	removal, cancel := context.WithTimeout(ctx, downPatience)
	defer cancel()
	if err := machine.RemoveCgroup(removal, Cgroup); err != nil {
		return proc.Identity{}, fmt.Errorf("end the containers of the Docker engine that died: %w", err)
	}
	// The files of a dockerd and a containerd that were killed say that they still run.
	if err := errors.Join(os.RemoveAll(e.path(pidFile)), os.RemoveAll(e.path(execRoot))); err != nil {
		return proc.Identity{}, fmt.Errorf("remove what is left of the Docker engine: %w", err)
	}
	return e.start(ctx, r)
}

// start starts dockerd in namespaces of its own. It sees a directory /run of its own, because containerd's shims leave
// sockets there.
func (e *Engine) start(ctx context.Context, r *record) (daemon proc.Identity, err error) {
	runtime := e.path("bin", "boundedrunc")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", runtime, "./test/cluster/boundedrunc")
	build.Dir, build.Env = e.Repository, append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return daemon, fmt.Errorf("build OCI runtime: %w: %s", err, output)
	}
	config, err := json.MarshalIndent(e.config(r, runtime), "", "  ")
	if err != nil {
		return daemon, fmt.Errorf("encode configuration of the Docker engine: %w", err)
	}
	if err := os.WriteFile(e.path("daemon.json"), config, 0o600); err != nil {
		return daemon, fmt.Errorf("write configuration of the Docker engine: %w", err)
	}
	if err := machine.CreateCgroup(Cgroup); err != nil {
		return daemon, err
	}
	binaries := filepath.Join(r.Tools, "usr", "sbin")
	const script = `mount -t tmpfs run /run && exec "$0" "$@"`
	daemon, err = proc.Start(proc.Command{
		Path: "/usr/bin/nsenter",
		Args: []string{
			"--net=" + e.namespace(), "unshare", "--mount", "--propagation", "slave", "sh", "-c", script,
			filepath.Join(binaries, "dockerd"), "--config-file", e.path("daemon.json"),
		},
		Env: []string{"PATH=" + binaries + ":" + filepath.Join(r.Tools, "usr", "bin") + ":" + machine.Path},
		Dir: e.Dir,
		Log: e.log(),
	})
	if err != nil {
		return daemon, fmt.Errorf("start Docker engine: %w", err)
	}
	return daemon, nil
}

func (e *Engine) log() string { return e.path("dockerd.log") }

// config is dockerd's configuration file.
func (e *Engine) config(r *record, runtime string) map[string]any {
	return map[string]any{
		"hosts":     []string{"unix://" + e.path("docker.sock")},
		"data-root": e.path("data"), "exec-root": e.path(execRoot), "pidfile": e.path(pidFile), "deprecated-key-path": e.path("key.json"),
		"storage-driver": "overlay2", "exec-opts": []string{"native.cgroupdriver=cgroupfs"}, "cgroup-parent": "/" + Cgroup,
		"bip":                   netip.PrefixFrom(r.bridge(), 24).String(),
		"default-address-pools": []map[string]any{{"base": r.nodes().String(), "size": 24}},
		"ipv6":                  false, "oom-score-adjust": 0,
		"userland-proxy": true, "userland-proxy-path": filepath.Join(r.Tools, "usr", "sbin", "docker-proxy"),
		"runtimes": map[string]any{"boundedrunc": map[string]string{"path": runtime}}, "default-runtime": "boundedrunc",
	}
}

const (
	startPatience = 60 * time.Second
	pollInterval  = 100 * time.Millisecond
)

// wait waits until the engine answers, and gives up when its process has ended.
func (e *Engine) wait(ctx context.Context, daemon proc.Identity) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		err := exec.CommandContext(ctx, "docker", "version").Run()
		if err == nil {
			return nil
		}
		if !daemon.Alive() || ctx.Err() != nil {
			return fmt.Errorf("wait for Docker engine: %w; see the end of its log:\n%s", err, e.tail())
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// tail is the end of the log.
func (e *Engine) tail() string {
	text, err := os.ReadFile(e.log())
	if err != nil {
		return err.Error()
	}
	const most = 20
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

const shim = "containerd-shim-runc-v2"

// processes are programs of the engine: dockerd, its containerd or the shims of containers. Their arguments name a file
// of the engine.
func (e *Engine) processes(names ...string) ([]proc.Identity, error) {
	return proc.Find(func(argv []string) bool {
		return slices.Contains(names, filepath.Base(argv[0])) &&
			slices.ContainsFunc(argv[1:], func(arg string) bool { return strings.HasPrefix(arg, e.Dir+"/") })
	})
}

const (
	// stopGrace is for dockerd to stop its containers.
	stopGrace = 20 * time.Second
	// downPatience is for all of Down.
	downPatience = 2 * time.Minute
)

// Down ends the engine with its containers, and leaves the machine as Up found it. It relies on no step of Up having
// been completed, nor on any process being alive.
func (e *Engine) Down(ctx context.Context) error {
	r, err := e.read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// A clean-up that is interrupted half-way would have to be done again anyway.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downPatience)
	defer cancel()
	for _, names := range [][]string{{"dockerd"}, {"containerd", shim}} { // dockerd stops its containers
		running, err := e.processes(names...)
		if err != nil {
			return err
		}
		if err := proc.Stop(ctx, stopGrace, running...); err != nil {
			return fmt.Errorf("stop Docker engine: %w", err)
		}
	}
	if err := machine.RemoveCgroup(ctx, Cgroup); err != nil {
		return err
	}
	if err := e.disconnect(ctx); err != nil {
		return err
	}
	if boot, err := proc.BootID(); err != nil {
		return err
	} else if boot == r.BootID {
		if err := errors.Join(machine.RestoreSysctls(r.Sysctls), machine.RestorePassedOn(r.PassedOn)); err != nil {
			return err
		}
	}
	r.removeOpt()
	return e.remove()
}

// removeOpt removes the directories that containerd has made, unless something is in them.
func (r *record) removeOpt() {
	if r.HadOpt {
		return
	}
	for _, dir := range opt {
		_ = os.Remove(dir)
	}
}

// remove removes the files of the engine, the record last: while it is there, Down can be called again.
func (e *Engine) remove() error {
	entries, err := os.ReadDir(e.Dir)
	if err != nil {
		return fmt.Errorf("remove Docker engine: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == recordFile {
			continue
		}
		if err := os.RemoveAll(e.path(entry.Name())); err != nil {
			return fmt.Errorf("remove Docker engine: %w", err)
		}
	}
	if err := os.RemoveAll(e.Dir); err != nil {
		return fmt.Errorf("remove Docker engine: %w", err)
	}
	return nil
}

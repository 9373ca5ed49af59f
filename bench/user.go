package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// nobody is the user of measured systems when the benchmark runs as root. Root has no limit
// of pages for pipes, and no adapter in a pod is root.
const nobody = 65534

// openToNobody lets the user nobody run the programs, if the benchmark runs as root. That
// user cannot read root's cache, so it copies the peers.
func (t *tools) openToNobody() error {
	if err := os.MkdirAll(t.home(), 0o755); err != nil {
		return fmt.Errorf("make directory for systems: %w", err)
	}
	if os.Getuid() != 0 || !othersReach(os.TempDir()) {
		return nil
	}
	t.demoted = true
	if t.modules != "" {
		copied := t.path("node_modules")
		if err := os.CopyFS(copied, os.DirFS(t.modules)); err != nil {
			return fmt.Errorf("copy peers: %w", err)
		}
		t.modules = copied
	}
	// Others may not look into a temporary directory, nor into that of a test above it.
	for _, dir := range []string{t.dir, filepath.Dir(t.dir)} {
		if filepath.Clean(dir) == filepath.Clean(os.TempDir()) {
			break
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			return fmt.Errorf("let others run programs: %w", err)
		}
	}
	if err := os.Chown(t.home(), nobody, nobody); err != nil {
		return fmt.Errorf("give directory to systems: %w", err)
	}
	return nil
}

// othersReach says whether other users may use what is below a directory.
func othersReach(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil || info.Mode()&1 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// home is where systems may write.
func (t *tools) home() string { return t.path("home") }

// uid is who systems run as.
func (t *tools) uid() int {
	if t.demoted {
		return nobody
	}
	return os.Getuid()
}

// demote makes a system run as the user nobody, if the benchmark runs as root.
func (t *tools) demote(command *exec.Cmd) {
	if !t.demoted {
		return
	}
	command.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	command.Dir = t.home()
	command.Env = append(os.Environ(), "HOME="+t.home())
}

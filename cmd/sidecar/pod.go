package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// drainSignal tells a running sidecar to drain. It is a signal and not a request to a port, because a
// client that reaches the pod must not be able to take the pod out of service.
const drainSignal = syscall.SIGUSR1

// install copies the launcher, from the directory of this program, into the directory that the server's
// container shares. After a restart of this container, the server's container still runs an earlier
// copy. So install replaces the file and does not overwrite it.
func install(dir string) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find launcher: %w", err)
	}
	source, err := os.Open(filepath.Join(filepath.Dir(self), "launcher"))
	if err != nil {
		return fmt.Errorf("read launcher: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	copied, err := os.CreateTemp(dir, ".launcher-*")
	if err != nil {
		return fmt.Errorf("write launcher: %w", err)
	}
	_, err = io.Copy(copied, source)
	err = errors.Join(err, copied.Chmod(0o755), copied.Close())
	if err == nil {
		err = os.Rename(copied.Name(), filepath.Join(dir, "launcher"))
	}
	if err != nil {
		return fmt.Errorf("write launcher: %w", errors.Join(err, os.Remove(copied.Name())))
	}
	return nil
}

// drain signals the sidecar, PID 1 of this container. It sends no signal if PID 1 is another program,
// such as pause in a pod with a shared PID namespace.
func drain() error {
	const sidecarPID = 1
	self, selfErr := os.Stat("/proc/self/exe")
	other, otherErr := os.Stat(fmt.Sprintf("/proc/%d/exe", sidecarPID))
	if err := errors.Join(selfErr, otherErr); err != nil {
		return fmt.Errorf("find adapter: %w", err)
	}
	if !os.SameFile(self, other) {
		return errors.New("find adapter: the first process of this container is another program")
	}
	if err := syscall.Kill(sidecarPID, drainSignal); err != nil {
		return fmt.Errorf("signal adapter: %w", err)
	}
	return nil
}

//go:build unix

package node

import (
	"os/exec"
	"syscall"
)

// Separate makes a program the first of a process group of its own, which Ctrl+C does not reach.
func Separate(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// group makes a program the first of a process group of its own: npx starts a shell, which starts Node.js,
// and a signal to npx alone leaves the others behind. Ctrl+C reaches this program only, which then ends
// the group.
func group(command *exec.Cmd) {
	Separate(command)
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
}

// killGroup kills what is left of the group.
func killGroup(command *exec.Cmd) { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }

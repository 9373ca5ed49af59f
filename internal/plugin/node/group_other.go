//go:build !unix

package node

import (
	"context"
	"os/exec"
	"strconv"
)

// Separate does nothing: the programs that Windows opens links with belong to no terminal.
func Separate(*exec.Cmd) {}

// group ends a program with all that it started: npx starts a shell, which starts Node.js.
func group(command *exec.Cmd) {
	command.Cancel = func() error {
		// The context of the program has ended.
		return exec.CommandContext(context.Background(), "taskkill", "/T", "/F", "/PID", strconv.Itoa(command.Process.Pid)).Run()
	}
}

// killGroup does nothing: Windows has no groups that outlive their first process.
func killGroup(*exec.Cmd) {}

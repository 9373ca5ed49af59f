package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// krew itself takes the manifest, and installs the plugin from it and its archive.
func TestLongKrewInstallsThePlugin(t *testing.T) {
	directory, _ := release(t, stub(t), platform{runtime.GOOS, runtime.GOARCH}, platform{"windows", "amd64"})
	home := t.TempDir()
	krew := func(tool string, args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), "go", append([]string{"tool", "-modfile=krew/go.mod", tool}, args...)...)
		command.Env = append(os.Environ(), "KREW_ROOT="+home)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", tool, args, err, output)
		}
	}
	manifest := filepath.Join(directory, "slipway.yaml")
	krew("validate-krew-manifest", "-manifest", manifest, "-skip-install")
	krew("krew", "install", "--manifest="+manifest,
		"--archive="+filepath.Join(directory, archiveOf(platform{runtime.GOOS, runtime.GOARCH})))

	output, err := exec.CommandContext(t.Context(), filepath.Join(home, "bin", "kubectl-slipway"), "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(output), testVersion) {
		t.Errorf("kubectl-slipway --version: %q, %v", output, err)
	}
}

package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// programs are what a node needs beside Kubernetes, and the Debian packages they are in.
var programs = []struct{ name, pkg string }{
	{"containerd", "containerd"},
	{"containerd-shim-runc-v2", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{"iptables", "iptables"},
	{"iptables-restore", "iptables"},
	{"ip6tables", "iptables"},
	{"conntrack", "conntrack"},
	{"ip", "iproute2"},
	{"socat", "socat"},
	{"mount", "mount"},
	{"modprobe", "kmod"},
}

var plugins = []string{"bridge", "host-local", "loopback", "portmap"}

// Path is where the programs of a node are looked for. On Debian a user's PATH
// lacks the directories for administration.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// CNIPlugins returns the directory with the CNI plugins.
func CNIPlugins() (string, error) {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		if !slices.ContainsFunc(plugins, func(plugin string) bool { return !executable(filepath.Join(dir, plugin)) }) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("find CNI plugins %s: neither in /usr/lib/cni nor in /opt/cni/bin", strings.Join(plugins, ", "))
}

// missingPackages lists the packages that would bring what is not there. What
// is there may come from anywhere: Docker's packages, say, have their own containerd.
func missingPackages() []string {
	var missing []string
	for _, program := range programs {
		found := slices.ContainsFunc(filepath.SplitList(Path), func(dir string) bool {
			return executable(filepath.Join(dir, program.name))
		})
		if !found && !slices.Contains(missing, program.pkg) {
			missing = append(missing, program.pkg)
		}
	}
	if _, err := CNIPlugins(); err != nil {
		missing = append(missing, "containernetworking-plugins")
	}
	return missing
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// InstallPackages installs what is missing, and returns the packages' names.
func InstallPackages(ctx context.Context) ([]string, error) {
	missing := missingPackages()
	if len(missing) == 0 {
		return nil, nil
	}
	install := "apt-get install --no-install-recommends " + strings.Join(missing, " ")
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return nil, fmt.Errorf("programs are missing; on Debian, as root: %s", install)
	}
	release, err := forbidServices()
	if err != nil {
		return nil, err
	}
	defer release()
	for _, args := range [][]string{
		{"-qq", "update"},
		append([]string{"-qq", "-y", "--no-install-recommends", "install"}, missing...),
	} {
		command := exec.CommandContext(ctx, "apt-get", args...)
		command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if output, err := command.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(output))
		}
	}
	if slices.Contains(missing, "containerd") {
		// Nor shall it be started at the next boot. Fails where there is no
		// systemd, which is as good.
		_ = exec.CommandContext(ctx, "systemctl", "disable", "containerd.service").Run()
	}
	if still := missingPackages(); len(still) > 0 {
		return nil, fmt.Errorf("after %s something from %s is still missing", install, strings.Join(still, ", "))
	}
	return missing, nil
}

// policy is asked by Debian's maintainer scripts before they start a service.
const policy = "/usr/sbin/policy-rc.d"

// forbidServices keeps a freshly installed containerd from being started as a
// service. A policy that the machine has already stays in force instead.
func forbidServices() (release func(), err error) {
	file, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("forbid starting services: %w", err)
	}
	const actionForbidden = "#!/bin/sh\nexit 101\n"
	_, err = file.WriteString(actionForbidden)
	err = errors.Join(err, file.Close())
	release = func() { _ = os.Remove(policy) } // The package manager may have been quicker.
	if err != nil {
		release()
		return nil, fmt.Errorf("forbid starting services: %w", err)
	}
	return release, nil
}

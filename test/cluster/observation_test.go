package main

import (
	"bytes"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/test/cluster/internal/engine"
	"github.com/slipway-mcp/slipway/test/cluster/internal/local"
	"github.com/slipway-mcp/slipway/test/cluster/internal/machine"
	"github.com/slipway-mcp/slipway/test/cluster/internal/proc"
)

// observation is what a cluster could leave on the machine.
type observation struct {
	Processes, Mounts, Cgroups, PassedOn, Chains, Interfaces, Routes, Paths []string
	// Everywhere are all mount points of the machine, and Hierarchies are the cgroup controllers with their hierarchies:
	// the systemd of a node could mount one for the whole machine.
	Everywhere, Hierarchies []string
	Filter                  string
	Sysctls                 map[string]string
}

func (o observation) leftovers() []string {
	var left []string
	left = append(left, o.Processes...)
	left = append(left, o.Mounts...)
	left = append(left, o.Cgroups...)
	left = append(left, o.Chains...)
	for _, name := range o.Interfaces {
		if name == local.Bridge || name == engine.Link || strings.HasPrefix(name, "veth") {
			left = append(left, name)
		}
	}
	return left
}

func observe(t *testing.T, dir string) observation {
	t.Helper()
	var o observation
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	processes, err := proc.Find(func(argv []string) bool {
		return strings.Contains(strings.Join(argv, " "), dir) && !strings.HasSuffix(argv[0], ".test")
	})
	must(err)
	for _, process := range processes {
		argv, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(process.PID), "cmdline"))
		if err == nil {
			o.Processes = append(o.Processes, string(bytes.ReplaceAll(argv, []byte{0}, []byte(" "))))
		}
	}
	o.Mounts, err = machine.MountsUnder(dir)
	must(err)
	mounts, err := machine.Mounts()
	must(err)
	for _, mount := range mounts {
		o.Everywhere = append(o.Everywhere, mount.Point)
	}
	slices.Sort(o.Everywhere)
	controllers, err := os.ReadFile("/proc/cgroups")
	must(err)
	for line := range strings.Lines(string(controllers)) {
		if fields := strings.Fields(line); len(fields) == 4 { // name, hierarchy, number of groups, enabled
			o.Hierarchies = append(o.Hierarchies, fields[0]+" "+fields[1])
		}
	}
	for _, name := range []string{local.Cgroup, engine.Cgroup} {
		dirs, err := machine.CgroupDirs(name)
		must(err)
		o.Cgroups = append(o.Cgroups, dirs...)
	}
	routes, err := machine.Routes(t.Context())
	must(err)
	for _, route := range routes {
		o.Routes = append(o.Routes, route.String())
	}
	o.PassedOn, err = machine.PassedOn()
	must(err)
	o.Sysctls = kernelParameters(t)
	if _, err := exec.LookPath("iptables"); err == nil { // Installed by the first up.
		chains, err := machine.ClusterChains(t.Context())
		must(err)
		for _, chain := range chains {
			o.Chains = append(o.Chains, chain.String())
		}
		o.Filter = filterRules(t, "iptables-save") + filterRules(t, "ip6tables-save")
	}
	interfaces, err := net.Interfaces()
	must(err)
	for _, link := range interfaces {
		o.Interfaces = append(o.Interfaces, link.Name)
	}
	for _, path := range []string{dir, "/etc/docker", "/opt/containerd", "/run/containerd", "/run/docker", "/run/netns", "/var/lib/docker", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers", "/var/log/pods"} {
		if _, err := os.Lstat(path); err == nil {
			o.Paths = append(o.Paths, path)
		}
	}
	return o
}

var (
	counters = regexp.MustCompile(`\[\d+:\d+\]`)
	// An empty table, which iptables cannot delete and which does nothing.
	emptyTable = regexp.MustCompile(`\*\w+\n(:\w+ ACCEPT\n)*COMMIT\n`)
)

// filterRules is the packet filter without comments, counters and empty tables.
func filterRules(t *testing.T, program string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), program).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(counters.ReplaceAllString(string(output), "")))
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#") })
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \n") + "\n"
	}
	return emptyTable.ReplaceAllString(strings.Join(lines, ""), "")
}

// volatile are kernel parameters that change by themselves, or with each interface.
var volatile = regexp.MustCompile(`^(dev/cdrom/info|fs/(binfmt_misc/|dentry-state|file-nr|inode-nr|inode-state|quota/)|kernel/(ns_last_pid|random/|pty/nr|keys/)|net/ipv[46]/(conf|neigh)/|net/netfilter/nf_conntrack_count|net/mptcp/|sunrpc/|vm/stat_refresh)`)

// kernelParameters are all below /proc/sys that can be read and do not change by themselves.
func kernelParameters(t *testing.T) map[string]string {
	t.Helper()
	values, err := machine.Sysctls()
	if err != nil {
		t.Fatal(err)
	}
	const root = "/proc/sys"
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root+"/")
		if err != nil || entry.IsDir() || volatile.MatchString(name) {
			return nil //nolint:nilerr // Parameters may go while the test looks.
		}
		if content, err := os.ReadFile(path); err == nil { // some can only be written
			values[name] = strings.TrimSpace(string(content))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return values
}

package launcher

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// memoryReserve is the part of the memory limit, one in this many, that must be free
	// for another process.
	memoryReserve = 10

	// pidReserve is how many processes and threads must be free. A Node.js server
	// has eleven threads, and one that npx starts has another twelve above it.
	pidReserve = 32

	// youth is how long a process may take to start its threads, and youngReserve
	// is how many may be missing until then.
	youth        = 2 * time.Second
	youngReserve = 12

	// unlimited is less than the number that cgroup v1 shows for no limit.
	unlimited = 1 << 60
)

// usage is what the container uses, and its limits. A limit of 0 is none.
type usage struct {
	memory, memoryLimit uint64
	pids, pidLimit      uint64
}

// refusal returns why there is no room for another process, or nil. It keeps room for the
// threads that young processes have not started yet.
func (u usage) refusal(young uint64) error {
	if u.memoryLimit > 0 && u.memory+u.memoryLimit/memoryReserve > u.memoryLimit {
		return &RefusedError{ReasonMemory, fmt.Sprintf("%d of %d MiB in use", u.memory>>20, u.memoryLimit>>20)}
	}
	if u.pidLimit > 0 && u.pids+pidReserve+youngReserve*young > u.pidLimit {
		return &RefusedError{ReasonPIDs, fmt.Sprintf("%d of %d processes and threads in use", u.pids, u.pidLimit)}
	}
	return nil
}

// cgroups reads the limits of this process. A missing file means no limit.
type cgroups struct {
	memory, pids string // directories, or empty
	unified      bool   // memory is a cgroup of version 2
}

// findCgroups looks under root, which is / outside tests.
func findCgroups(root string) cgroups {
	mounts, _ := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	paths, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	var found cgroups
	var unified string
	for line := range strings.Lines(string(paths)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch fields[1] {
		case "":
			unified = cgroupDir(root, mounts, "cgroup2", "", fields[2])
		case "memory", "pids":
			dir := cgroupDir(root, mounts, "cgroup", fields[1], fields[2])
			if fields[1] == "pids" {
				found.pids = dir
			} else {
				found.memory = dir
			}
		}
	}
	if found.memory == "" {
		found.memory, found.unified = unified, true
	}
	if found.pids == "" {
		found.pids = unified
	}
	return found
}

// cgroupDir returns the directory of a cgroup in this mount namespace. A container may
// see the host's path of its cgroup, and a mount that begins there.
func cgroupDir(root string, mounts []byte, filesystem, controller, path string) string {
	lines := bufio.NewScanner(bytes.NewReader(mounts))
	for lines.Scan() {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		mount, super := strings.Fields(before), strings.Fields(after)
		if len(mount) < 5 || len(super) < 3 || super[0] != filesystem {
			continue
		}
		if controller != "" && !strings.Contains(","+super[2]+",", ","+controller+",") {
			continue
		}
		point := filepath.Join(root, mount[4])
		if inner, ok := strings.CutPrefix(path, strings.TrimSuffix(mount[3], "/")); ok {
			dir := filepath.Join(point, inner)
			if _, err := os.Stat(dir); err == nil {
				return dir
			}
		}
		return point
	}
	return ""
}

func (c cgroups) usage() usage {
	u := usage{pids: number(c.pids, "pids.current"), pidLimit: number(c.pids, "pids.max")}
	if c.unified {
		u.memory, u.memoryLimit = number(c.memory, "memory.current"), number(c.memory, "memory.max")
		u.memory -= min(u.memory, keyed(c.memory, "memory.stat", "inactive_file"))
	} else {
		u.memory, u.memoryLimit = number(c.memory, "memory.usage_in_bytes"), number(c.memory, "memory.limit_in_bytes")
		u.memory -= min(u.memory, keyed(c.memory, "memory.stat", "total_inactive_file"))
	}
	if u.memoryLimit >= unlimited {
		u.memoryLimit = 0
	}
	return u
}

// oomKills returns how many processes the kernel has killed in this cgroup for memory.
func (c cgroups) oomKills() uint64 {
	if c.unified {
		return keyed(c.memory, "memory.events", "oom_kill")
	}
	return keyed(c.memory, "memory.oom_control", "oom_kill")
}

// number reads a file with one number in it. It returns 0 for "max" and for no file.
func number(dir, name string) uint64 {
	if dir == "" {
		return 0
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	value, _ := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	return value
}

// keyed reads one line of a file of names and numbers.
func keyed(dir, name, key string) uint64 {
	if dir == "" {
		return 0
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, key+" "); ok {
			parsed, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			return parsed
		}
	}
	return 0
}

// oomWatch attributes the kernel's kills to processes: each counts once.
type oomWatch struct {
	kills   func() uint64
	claimed uint64
}

func newOOMWatch(kills func() uint64) *oomWatch {
	return &oomWatch{kills: kills, claimed: kills()}
}

// claims says whether an end looks like one of those kills: the process died of a KILL
// that the supervisor has not sent, or a shell reports one, and the counter has grown.
func (o *oomWatch) claims(exit Exit, ours bool) bool {
	const shellKilled = signalCode + int(syscall.SIGKILL)
	if ours || (exit.Signal != syscall.SIGKILL && exit.Code != shellKilled) {
		return false
	}
	if o.kills() <= o.claimed {
		return false
	}
	o.claimed++
	return true
}

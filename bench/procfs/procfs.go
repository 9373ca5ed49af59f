// Package procfs asks the kernel what processes cost.
package procfs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of /proc/PID/stat and of /proc/stat, on every architecture that we
// build for.
const tick = 10 * time.Millisecond

// Process is a line of /proc/PID/stat.
type Process struct {
	PID, Parent int
	Zombie      bool // it has ended, and its parent has not reaped it
	Threads     int
	Started     uint64        // ticks after the boot; with the PID it identifies a process uniquely
	Reaped      time.Duration // CPU of children that have ended and were waited for
}

// ReadProcess reads /proc/PID/stat.
func ReadProcess(pid int) (Process, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	return parseProcess(text)
}

func parseProcess(text []byte) (Process, error) {
	// The name stands in brackets and may contain anything, brackets among it.
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return Process{}, fmt.Errorf("parse process %q: no name", text)
	}
	fields := append([]string{strings.TrimSpace(string(text[:open])), ""}, strings.Fields(string(text[end+1:]))...)
	// As proc(5) numbers them, less one.
	const pid, state, parent, childUser, childSystem, threads, started = 0, 2, 3, 15, 16, 19, 21
	var numbers [started + 1]uint64
	for _, i := range []int{pid, parent, childUser, childSystem, threads, started} {
		if i >= len(fields) {
			return Process{}, fmt.Errorf("parse process %q: too short", text)
		}
		number, err := strconv.ParseUint(fields[i], 10, 63)
		if err != nil {
			return Process{}, fmt.Errorf("parse process %q: %w", text, err)
		}
		numbers[i] = number
	}
	return Process{
		PID:     int(numbers[pid]),
		Parent:  int(numbers[parent]),
		Zombie:  fields[state] == "Z",
		Threads: int(numbers[threads]),
		Started: numbers[started],
		Reaped:  time.Duration(numbers[childUser]+numbers[childSystem]) * tick,
	}, nil
}

// CPU is the time that a process has used, user and system, all of its threads. It is
// the sum of utime and stime of /proc/PID/stat, in nanoseconds instead of ticks: cells
// are short.
func CPU(pid int) (time.Duration, error) {
	const processClock = 2 // see clock_getcpuclockid(3)
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|processClock), &used); err != nil {
		return 0, fmt.Errorf("read CPU time of process %d: %w", pid, err)
	}
	return time.Duration(used.Nano()), nil
}

// Memory is what /proc/PID/smaps_rollup says, in bytes.
type Memory struct {
	Resident int64 // RSS
	Share    int64 // PSS: pages that n processes have count as 1/n
	Private  int64 // USS: pages that no other process maps
}

// ReadMemory reads /proc/PID/smaps_rollup.
func ReadMemory(pid int) (Memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	return parseMemory(text)
}

func parseMemory(text []byte) (m Memory, err error) {
	found := 0
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		var to *int64
		switch name {
		case "Rss":
			to = &m.Resident
		case "Pss":
			to = &m.Share
		case "Private_Clean", "Private_Dirty":
			to = &m.Private
		default:
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return Memory{}, fmt.Errorf("parse memory %q: %w", line, err)
		}
		*to += kib << 10
		found++
	}
	if found != 4 {
		return Memory{}, fmt.Errorf("parse memory: %d of 4 lines", found)
	}
	return m, nil
}

// PeakMemory is the most that a process has had resident since its start, in bytes.
func PeakMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	return parsePeak(text)
}

func parsePeak(text []byte) (int64, error) {
	for line := range strings.Lines(string(text)) {
		value, ok := strings.CutPrefix(line, "VmHWM:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse memory %q: %w", line, err)
		}
		return kib << 10, nil
	}
	return 0, errors.New("parse memory: no peak")
}

// CPUTimes are times of all CPUs together since the boot.
type CPUTimes struct {
	// Busy is when they did not idle, Stolen included: a process that waits for a CPU waits
	// as long either way.
	Busy time.Duration
	// Stolen is when a process wanted a CPU that the hypervisor gave to another machine.
	Stolen time.Duration
}

// Sub is what has passed since an earlier reading.
func (c CPUTimes) Sub(earlier CPUTimes) CPUTimes {
	return CPUTimes{Busy: c.Busy - earlier.Busy, Stolen: c.Stolen - earlier.Stolen}
}

// ReadCPUTimes reads the times so far.
func ReadCPUTimes() (CPUTimes, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return CPUTimes{}, fmt.Errorf("read CPU times: %w", err)
	}
	return parseCPUTimes(text)
}

func parseCPUTimes(text []byte) (times CPUTimes, err error) {
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(first)
	const idle, ioWait, stolen, guest = 4, 5, 8, 9 // guest is in user, too
	if len(fields) < guest || fields[0] != "cpu" {
		return CPUTimes{}, fmt.Errorf("parse CPU times %q", first)
	}
	for i, field := range fields[:guest] {
		if i == 0 || i == idle || i == ioWait {
			continue
		}
		ticks, err := strconv.ParseUint(field, 10, 63)
		if err != nil {
			return CPUTimes{}, fmt.Errorf("parse CPU times %q: %w", first, err)
		}
		times.Busy += time.Duration(ticks) * tick
		if i == stolen {
			times.Stolen = time.Duration(ticks) * tick
		}
	}
	return times, nil
}

// Descendants are the processes below one, in no order. What ends meanwhile is left out.
func Descendants(pid int) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]Process{}
	for _, entry := range entries {
		number, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		process, err := ReadProcess(number)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return nil, err
		}
		children[process.Parent] = append(children[process.Parent], process)
	}
	below := slices.Clone(children[pid])
	for i := 0; i < len(below); i++ {
		below = append(below, children[below[i].PID]...)
	}
	return below, nil
}

// Model is what the kernel calls this machine's CPU.
func Model() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

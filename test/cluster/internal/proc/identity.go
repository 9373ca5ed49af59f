// Package proc starts processes that outlive the command that started them, and
// finds and ends exactly those again.
package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Identity names one process for good. A PID alone does not, because the kernel
// gives it to another process sooner or later.
type Identity struct {
	PID int `json:"pid"`
	// StartTime is field 22 of /proc/PID/stat: clock ticks since the machine booted.
	StartTime uint64 `json:"startTime"`
	// BootID tells equal start times of two boots apart.
	BootID string `json:"bootID"`
}

// BootID identifies the time since the machine was last booted.
func BootID() (string, error) {
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot ID: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// Identify returns the identity of a running process.
func Identify(pid int) (Identity, error) {
	stat, err := readStat(pid)
	if err != nil {
		return Identity{}, err
	}
	if stat.dead() {
		return Identity{}, fmt.Errorf("identify process %d: %w", pid, os.ErrProcessDone)
	}
	boot, err := BootID()
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, StartTime: stat.start, BootID: boot}, nil
}

// Alive reports whether this very process still runs. A zombie does not: init may
// never reap what a finished command left to it.
func (i Identity) Alive() bool {
	if i.PID <= 0 {
		return false
	}
	now, err := Identify(i.PID)
	return err == nil && now == i
}

// Signal sends a signal to this process and never to a later one with the same
// PID: the handle is taken first and the identity checked through it after.
func (i Identity) Signal(signal syscall.Signal) error {
	process, err := os.FindProcess(i.PID)
	if err != nil {
		return fmt.Errorf("find process %d: %w", i.PID, err)
	}
	defer func() { _ = process.Release() }() // Nothing to be done about it.
	if !i.Alive() {
		return os.ErrProcessDone
	}
	return process.Signal(signal)
}

type stat struct {
	state   byte
	threads int
	start   uint64
}

// dead tells whether nothing of the process runs any more. While other threads do, its
// files and ports are open, although its first thread may be a zombie already.
func (s stat) dead() bool { return s.state == 'X' || s.state == 'Z' && s.threads <= 1 }

func readStat(pid int) (stat, error) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, err
	}
	parsed, err := parseStat(string(content))
	if err != nil {
		return stat{}, fmt.Errorf("parse /proc/%d/stat: %w", pid, err)
	}
	return parsed, nil
}

// parseStat reads a stat line. The second field is the command's name, in
// parentheses and otherwise anything: only the last parenthesis ends it.
func parseStat(line string) (stat, error) {
	end := strings.LastIndexByte(line, ')')
	if end < 0 {
		return stat{}, errors.New("no command name")
	}
	fields := strings.Fields(line[end+1:])
	const state, threads, start = 0, 20 - 3, 22 - 3 // The first field after the name is number 3.
	if len(fields) <= start {
		return stat{}, fmt.Errorf("%d fields after the command name", len(fields))
	}
	ticks, err := strconv.ParseUint(fields[start], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("start time: %w", err)
	}
	number, err := strconv.Atoi(fields[threads])
	if err != nil {
		return stat{}, fmt.Errorf("number of threads: %w", err)
	}
	return stat{state: fields[state][0], threads: number, start: ticks}, nil
}

// Command boundedrunc is an OCI runtime for machines that may not grant everything a privileged container asks for. It
// takes out of a container's description what this machine cannot give, and then becomes runc:
//
//   - capabilities outside of its own bounding set, for which runc fails with "unable to apply caps"
//   - an oom_score_adj below its own
//   - resource limits above its own hard limits
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "boundedrunc:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if path, isContainer := description(args); path != "" {
		bounds, err := ownBounds()
		if err != nil {
			return err
		}
		if err := rewrite(path, isContainer, bounds); err != nil {
			return fmt.Errorf("bound %s: %w", path, err)
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return fmt.Errorf("find runc: %w", err)
	}
	return syscall.Exec(runc, append([]string{runc}, args...), os.Environ())
}

// description returns the file that describes what a command of runc starts, and whether it is that of a whole
// container; nothing for a command that starts nothing.
func description(args []string) (path string, isContainer bool) {
	for _, arg := range args {
		switch arg {
		case "create", "run", "restore":
			return filepath.Join(option(args, "--bundle", "-b"), "config.json"), true
		case "exec":
			return option(args, "--process", "-p"), false
		}
	}
	return "", false
}

func option(args []string, names ...string) string {
	for i, arg := range args {
		for _, name := range names {
			if value, ok := strings.CutPrefix(arg, name+"="); ok {
				return value
			}
			if arg == name && i+1 < len(args) {
				return args[i+1]
			}
		}
	}
	return ""
}

// rewrite changes nothing of a description but what is beyond the bounds: it keeps members that it does not know.
func rewrite(path string, isContainer bool, b bounds) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var whole map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // limits may be larger than a float64 can hold
	if err := decoder.Decode(&whole); err != nil {
		return err
	}
	process := whole
	if isContainer {
		process, _ = whole["process"].(map[string]any)
	}
	b.apply(process)
	if text, err = json.Marshal(whole); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// bounds are what this process may give to its children.
type bounds struct {
	capabilities uint64
	oomScoreAdj  int64
	hardLimit    func(resource int) (uint64, error)
}

func ownBounds() (b bounds, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return b, fmt.Errorf("read own capabilities: %w", err)
	}
	_, after, found := strings.Cut(string(status), "\nCapBnd:")
	if !found {
		return b, errors.New("read own capabilities: /proc/self/status has no CapBnd")
	}
	line, _, _ := strings.Cut(after, "\n")
	if b.capabilities, err = strconv.ParseUint(strings.TrimSpace(line), 16, 64); err != nil {
		return b, fmt.Errorf("read own capabilities: %w", err)
	}
	score, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return b, fmt.Errorf("read own oom_score_adj: %w", err)
	}
	if b.oomScoreAdj, err = strconv.ParseInt(strings.TrimSpace(string(score)), 10, 64); err != nil {
		return b, fmt.Errorf("read own oom_score_adj: %w", err)
	}
	b.hardLimit = func(resource int) (uint64, error) {
		var limit unix.Rlimit
		err := unix.Getrlimit(resource, &limit)
		return limit.Max, err
	}
	return b, nil
}

// apply takes out of the description of a process what is beyond the bounds.
func (b bounds) apply(process map[string]any) {
	sets, _ := process["capabilities"].(map[string]any)
	for set, value := range sets {
		if names, ok := value.([]any); ok {
			sets[set] = slices.DeleteFunc(names, func(name any) bool { return !b.allows(name) })
		}
	}
	if score, ok := process["oomScoreAdj"].(json.Number); ok {
		if wanted, err := score.Int64(); err == nil && wanted < b.oomScoreAdj {
			delete(process, "oomScoreAdj")
		}
	}
	if limits, ok := process["rlimits"].([]any); ok {
		process["rlimits"] = slices.DeleteFunc(limits, b.exceeds)
	}
}

// capabilities are in the order of their numbers.
var capabilities = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
	NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT
	SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP
	MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// allows reports whether a capability is in the bounding set. It leaves one that it does not know to runc.
func (b bounds) allows(name any) bool {
	text, _ := name.(string)
	number := slices.Index(capabilities, strings.TrimPrefix(text, "CAP_"))
	return number < 0 || b.capabilities&(1<<number) != 0
}

var resources = map[string]int{
	"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_CPU": unix.RLIMIT_CPU, "RLIMIT_DATA": unix.RLIMIT_DATA,
	"RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK, "RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE,
	"RLIMIT_NICE": unix.RLIMIT_NICE, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_RSS": unix.RLIMIT_RSS,
	"RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO, "RLIMIT_RTTIME": unix.RLIMIT_RTTIME, "RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING, "RLIMIT_STACK": unix.RLIMIT_STACK,
}

// exceeds reports whether a limit is above the hard limit of this process.
func (b bounds) exceeds(limit any) bool {
	entry, _ := limit.(map[string]any)
	name, _ := entry["type"].(string)
	hard, _ := entry["hard"].(json.Number)
	resource, known := resources[name]
	wanted, err := strconv.ParseUint(hard.String(), 10, 64)
	if !known || err != nil {
		return false // it is for runc to say what is wrong with it
	}
	most, err := b.hardLimit(resource)
	return err == nil && wanted > most
}

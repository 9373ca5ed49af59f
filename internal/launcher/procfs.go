package launcher

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// sessionVariable marks every process of a session, and the processes they start.
const sessionVariable = "SLIPWAY_SESSION"

// maxEnviron bounds how much of an environment readMark reads. The supervisor puts the
// mark first.
const maxEnviron = 1 << 20

// procStat is what /proc/PID/stat says of a process.
type procStat struct {
	pid, parent, group int
	dead               bool // all of it: the kernel has given its children a new parent
	leaving            bool // its first thread is ending, and perhaps all of it
}

// processes lists the numbers in /proc.
func processes() ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = proc.Close() }()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// readStat reads the state of a process. It takes a missing process for dead.
func readStat(pid int) (stat procStat, ok bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return procStat{pid: pid, dead: true}, true
	}
	if err != nil {
		return procStat{}, false
	}
	return parseStat(pid, string(data))
}

// Fields of /proc/PID/stat, counted from the one behind the command's name, and a
// bit of the flags.
const (
	statState   = 0
	statParent  = 1
	statGroup   = 2
	statFlags   = 6
	statThreads = 17
	flagExiting = 0x4 // PF_EXITING
)

// parseStat begins behind the command's name, which may hold anything.
func parseStat(pid int, text string) (procStat, bool) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) <= statThreads {
		return procStat{}, false
	}
	var numbers [statThreads + 1]int
	for _, field := range []int{statParent, statGroup, statFlags, statThreads} {
		number, err := strconv.Atoi(fields[field])
		if err != nil {
			return procStat{}, false
		}
		numbers[field] = number
	}
	// The first thread may be dead while others are not.
	zombie := fields[statState] == "Z" || fields[statState] == "X"
	dead := zombie && numbers[statThreads] <= 1
	return procStat{
		pid:     pid,
		parent:  numbers[statParent],
		group:   numbers[statGroup],
		dead:    dead,
		leaving: !dead && (zombie || numbers[statFlags]&flagExiting != 0),
	}, true
}

// readMark returns the session of a process, from its environment. A process in the
// middle of exec or exit has no environment, so that its session is not known then. A
// process that has started without an environment looks the same.
func readMark(stat procStat) (mark string, known bool) {
	dir := "/proc/" + strconv.Itoa(stat.pid)
	environ := readEnviron(dir)
	if len(environ) == 0 && stat.leaving {
		// A first thread that has left the others behind has no environment.
		tasks, _ := os.ReadDir(dir + "/task")
		for _, task := range tasks {
			if environ = readEnviron(dir + "/task/" + task.Name()); len(environ) > 0 {
				break
			}
		}
	}
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if mark, ok := bytes.CutPrefix(entry, []byte(sessionVariable+"=")); ok {
			return string(mark), true
		}
	}
	return "", len(environ) > 0
}

func readEnviron(dir string) []byte {
	file, err := os.Open(dir + "/environ")
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	environ, _ := io.ReadAll(io.LimitReader(file, maxEnviron))
	return environ
}

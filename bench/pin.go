package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// placement is where the processes of a pinned workload run: the bridge and everything
// that it starts on one CPU, the generator on another.
type placement struct {
	system, generator int
}

var errOneCPU = errors.New("the benchmark may use one CPU only")

// placeOn picks two of the CPUs that the benchmark may use. The first and the last are
// hyperthreads of one core only if there are no others.
func placeOn(allowed []int) (placement, error) {
	if len(allowed) < 2 {
		return placement{}, errOneCPU
	}
	return placement{system: allowed[0], generator: allowed[len(allowed)-1]}, nil
}

// allowedCPUs are those that the benchmark may use, in ascending order.
func allowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("find CPUs: %w", err)
	}
	return members(&set), nil
}

func members(set *unix.CPUSet) (cpus []int) {
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

func only(cpu int) *unix.CPUSet {
	var set unix.CPUSet
	set.Set(cpu)
	return &set
}

// pin moves the generator to its CPU, with as many Ps as a Go program has that starts
// there. The tools that it returns start systems on the other CPU. release undoes both.
func (t *tools) pin() (pinned *tools, release func() error, err error) {
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, nil, fmt.Errorf("find CPUs: %w", err)
	}
	at, err := placeOn(members(&before))
	if err != nil {
		return nil, nil, err
	}
	procs := runtime.GOMAXPROCS(1)
	release = func() error {
		runtime.GOMAXPROCS(procs)
		return moveThreads(&before)
	}
	if err := moveThreads(only(at.generator)); err != nil {
		return nil, nil, errors.Join(err, release())
	}
	moved := *t
	moved.cpus = only(at.system)
	return &moved, release, nil
}

// moveThreads gives CPUs to all threads of this process. A thread inherits the CPUs of the
// thread that starts it, so once every thread of a listing has been moved and the next
// listing has no other threads, none is left behind.
func moveThreads(to *unix.CPUSet) error {
	for moved := map[int]bool{}; ; {
		threads, err := threads()
		if err != nil {
			return err
		}
		threads = slices.DeleteFunc(threads, func(thread int) bool { return moved[thread] })
		if len(threads) == 0 {
			return nil
		}
		for _, thread := range threads {
			if err := unix.SchedSetaffinity(thread, to); err != nil && !errors.Is(err, unix.ESRCH) { // else it has ended
				return fmt.Errorf("move thread %d: %w", thread, err)
			}
			moved[thread] = true
		}
	}
}

// threads are those of this process.
func threads() (ids []int, err error) {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("list threads: %w", err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// startOn starts a process that has these CPUs from its first instruction, and so have its
// own threads and processes: all of them inherit the CPUs of the thread that starts them.
// The runtime does not start threads of its own from a locked one.
func startOn(cpus *unix.CPUSet, start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("find CPUs: %w", err)
	}
	if err := unix.SchedSetaffinity(0, cpus); err != nil {
		return fmt.Errorf("move thread: %w", err)
	}
	err := start()
	if back := unix.SchedSetaffinity(0, &before); back != nil {
		return errors.Join(err, fmt.Errorf("move thread back: %w", back))
	}
	return err
}

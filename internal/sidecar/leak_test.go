package sidecar

import (
	"bytes"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/sidecar/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
)

var leakSessions = flag.Int("leak-sessions", 1000, "sessions that TestNothingIsLeftBehind opens and abandons")

const (
	leakAtATime = 24
	leakWarmUp  = 400 // after which caches, pools and the runtime have their size

	// leakHeap is the growth of the live heap that is taken for noise: maps and the
	// runtime's lists keep the size of the busiest moment. Of 10,000 sessions it is
	// 100 bytes each, less than any of their parts takes.
	leakHeap = 1 << 20
	// leakRSS is the same for memory that the kernel counts, which never shrinks to
	// the page. It is not looked at under the race detector, whose own records grow.
	leakRSS = 24 << 20

	settled = 60 * time.Second
)

// R01, R03, R22: however sessions end, nothing of them is left: no process, no
// descriptor, no goroutine, no memory.
func TestNothingIsLeftBehind(t *testing.T) {
	for name, test := range map[string]struct {
		start    func(t *testing.T, env []string) (child.Starter, int)
		change   func(*Config)
		sessions int
		resting  int // processes that are always there
		survives bool
		ways     []way // all, if nil
	}{
		"its own children": {start: startDirect, sessions: *leakSessions, resting: 2},
		"without sessions, translated": {
			start: startDirect, change: func(c *Config) { c.ParkTimeout = time.Second },
			sessions: (*leakSessions + 2) / 3, resting: 2, ways: statelessWays,
		},
		"translated sessions": {
			start: startModern, change: func(c *Config) { c.Era = stateless.Modern },
			sessions: (*leakSessions + 2) / 3, resting: 2, ways: translatedWays,
		},
		"by the launcher": {start: startLauncher, sessions: (*leakSessions + 2) / 3, resting: 2},
		"one process for all": {
			start: startDirect, change: func(c *Config) { c.Shared = true },
			sessions: *leakSessions, resting: 2, survives: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			mark := "SLIPWAY_LEAK_TEST=" + rand.Text()
			starter, parent := test.start(t, append(os.Environ(), mark))
			adapter, url := startAdapterBy(t, newListener(t), starter, func(c *Config) {
				c.MaxSessions = 320
				c.IdleTimeout = time.Second
				c.CallTimeout = 2 * time.Second
				c.ConcurrentStarts = 16
				c.LegacySSE = true
				if test.change != nil {
					test.change(c)
				}
			})
			watch := &leakWatch{adapter: adapter, parent: parent, mark: mark, resting: test.resting}
			var usable []way
			if test.ways == nil {
				test.ways = ways
			}
			for _, w := range test.ways {
				if !w.kills || !test.survives {
					usable = append(usable, w)
				}
			}
			abandon(t, url, min(leakWarmUp, test.sessions), usable)
			before := watch.rest(t)
			began := time.Now()
			abandon(t, url, test.sessions, usable)
			took := time.Since(began)
			watch.await(t, before)
			after := watch.read(t)
			t.Logf("%d sessions in %s, %.0f a second", test.sessions, took.Round(time.Millisecond), float64(test.sessions)/took.Seconds())
			t.Logf("before: %s", before)
			t.Logf("after:  %s", after)
			after.compare(t, before)
		})
	}
}

// abandon opens sessions, a few at a time, and leaves each in another way.
func abandon(t *testing.T, url string, sessions int, ways []way) {
	t.Helper()
	var running sync.WaitGroup
	slots := make(chan struct{}, leakAtATime)
	for n, round := 0, 0; n < sessions && !t.Failed(); round++ {
		for _, w := range ways {
			if w.every != 0 && round%w.every != 0 {
				continue
			}
			n++
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				ctx, cancel := context.WithTimeout(t.Context(), settled)
				defer cancel()
				if err := w.leave(ctx, url); err != nil {
					t.Errorf("%s, round %d: %v", w.name, round, err)
				}
			})
		}
	}
	running.Wait()
}

func startDirect(t *testing.T, env []string) (starter child.Starter, parent int) {
	t.Helper()
	return startProgram(t, env, echoServer)
}

// startModern has a server that speaks the revision without sessions.
func startModern(t *testing.T, env []string) (starter child.Starter, parent int) {
	t.Helper()
	return startProgram(t, env, bothServer)
}

func startProgram(t *testing.T, env []string, program string) (starter child.Starter, parent int) {
	t.Helper()
	direct, err := launcher.NewDirect(launcher.Options{Command: []string{program}, Env: env, Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := direct.Close(); err != nil {
			t.Errorf("close launcher: %v", err)
		}
	})
	return direct, os.Getpid()
}

// startLauncher has processes started by the program that does so in a pod.
func startLauncher(t *testing.T, env []string) (starter child.Starter, parent int) {
	t.Helper()
	socket := filepath.Join(filepath.Dir(launcherProgram), "s"+rand.Text()[:8])
	host, err := launcher.Listen(socket, launcher.HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(context.WithoutCancel(t.Context()), launcherProgram, "--socket", socket, "--", echoServer)
	command.Env = env
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		if err := command.Wait(); err != nil {
			t.Errorf("launcher: %v", err)
		}
		_ = host.Close()
	})
	ctx, cancel := context.WithTimeout(t.Context(), settled)
	defer cancel()
	if err := host.WaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
	return host, command.Process.Pid
}

// leakWatch counts what sessions could leave behind.
type leakWatch struct {
	adapter *Adapter
	parent  int    // of the servers' processes: this one or the launcher
	mark    string // in the environment of every process that has to do with them
	resting int
}

// traces are what is there of sessions.
type traces struct {
	sessions, processes, zombies, goroutines int
	descriptors, parentDescriptors           int
	parentThreads                            int
	heap, objects                            uint64
	rss, parentRSS                           int
}

func (f traces) String() string {
	return fmt.Sprintf("%d processes, %d zombies, %d descriptors, %d goroutines, heap %d KiB in %d objects, RSS %d KiB; parent: %d descriptors, %d threads, RSS %d KiB",
		f.processes, f.zombies, f.descriptors, f.goroutines, f.heap>>10, f.objects, f.rss>>10, f.parentDescriptors, f.parentThreads, f.parentRSS>>10)
}

// counts are the traces that must come back to what they were, to the last one.
func (w *leakWatch) counts(t *testing.T) traces {
	t.Helper()
	f := traces{
		sessions: w.adapter.openSessions(), goroutines: runtime.NumGoroutine(),
		descriptors: entries(t, "/proc/self/fd"), parentDescriptors: entries(t, fmt.Sprintf("/proc/%d/fd", w.parent)),
	}
	f.processes, f.zombies = w.processes(t)
	return f
}

// processes counts those that carry the mark, wherever they have gone, and the dead
// that nobody has collected.
func (w *leakWatch) processes(t *testing.T) (marked, zombies int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range all {
		environment, err := os.ReadFile(dir + "/environ")
		if err == nil && bytes.Contains(environment, []byte(w.mark)) && filepath.Base(dir) != strconv.Itoa(w.parent) {
			marked++
		}
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // it is gone
		}
		_, fields, _ := strings.Cut(string(stat), ") ")
		var state string
		var parent int
		if _, err := fmt.Sscan(fields, &state, &parent); err == nil && state == "Z" && parent == w.parent {
			zombies++
		}
	}
	return marked, zombies
}

func entries(t *testing.T, dir string) int {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// read has the memory, too. What can be freed is freed before.
func (w *leakWatch) read(t *testing.T) traces {
	t.Helper()
	runtime.GC() // pools keep things for one collection
	debug.FreeOSMemory()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	f := w.counts(t)
	f.heap, f.objects = memory.HeapAlloc, memory.HeapObjects
	f.rss, f.parentRSS = resident(t, os.Getpid()), resident(t, w.parent)
	f.parentThreads = entries(t, fmt.Sprintf("/proc/%d/task", w.parent))
	return f
}

func resident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// rest waits until no session is left and nothing moves any more.
func (w *leakWatch) rest(t *testing.T) traces {
	t.Helper()
	const still = 25
	var last traces
	seen := 0
	gomega.NewWithT(t).Eventually(func() string {
		now := w.counts(t)
		if now != last || now.sessions != 0 || now.processes != w.resting || now.zombies != 0 {
			last, seen = now, 0
		}
		if seen++; seen < still {
			return now.String()
		}
		return ""
	}).WithTimeout(settled).WithPolling(20 * time.Millisecond).Should(gomega.BeEmpty())
	return w.read(t)
}

// await waits until everything that can be counted is as it was.
func (w *leakWatch) await(t *testing.T, before traces) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() string {
		now := w.counts(t)
		if now.sessions == 0 && now.processes == w.resting && now.zombies == 0 && now.goroutines <= before.goroutines &&
			now.descriptors <= before.descriptors && now.parentDescriptors <= before.parentDescriptors {
			return ""
		}
		return now.String()
	}).WithTimeout(settled).WithPolling(20*time.Millisecond).Should(gomega.BeEmpty(), "before it was %s", before)
}

// compare looks at memory, which is never the same to the byte.
func (f traces) compare(t *testing.T, before traces) {
	t.Helper()
	if f.heap > before.heap+leakHeap {
		t.Errorf("the live heap grew by %d bytes, more than %d", f.heap-before.heap, leakHeap)
	}
	if grown := f.rss - before.rss; grown > leakRSS && !raceDetector() {
		t.Errorf("this process grew by %d bytes, more than %d", grown, leakRSS)
	}
	if grown := f.parentRSS - before.parentRSS; grown > leakRSS && !raceDetector() {
		t.Errorf("the processes' parent grew by %d bytes, more than %d", grown, leakRSS)
	}
}

func raceDetector() bool {
	build, _ := debug.ReadBuildInfo()
	return build != nil && slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

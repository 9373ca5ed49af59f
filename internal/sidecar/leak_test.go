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
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/test/hang"
)

var leakSessions = flag.Int("leak-sessions", 80, "sessions that TestNothingIsLeftBehind opens and abandons")

const (
	leakAtATime = 4   // of each kind
	leakWarmUp  = 400 // after which caches, pools and the runtime have their size, however many follow

	// leakHeap is the growth of the live heap that is taken for noise: maps and the
	// runtime's lists keep the size of the busiest moment. There is leakHeapEach for
	// each session besides, which is less than any of their parts takes.
	leakHeap     = 256 << 10
	leakHeapEach = 64
	// leakRSS is the same for memory that the kernel counts, which never shrinks to
	// the page. It is not looked at under the race detector, whose own records grow.
	leakRSS = 24 << 20
)

// leakKind is one way to have a server.
type leakKind struct {
	name     string
	start    func(t *testing.T, env []string) (child.Starter, int)
	change   func(*config.Config)
	sessions int
	resting  int // processes that are always there
	ways     []way
}

func leakKinds() []leakKind {
	third := (*leakSessions + 2) / 3
	return []leakKind{
		{name: "its own children", start: startDirect, sessions: *leakSessions, resting: 2, ways: ways},
		{name: "without sessions, translated", start: startDirect, sessions: third, resting: 2, ways: statelessWays},
		{
			name: "translated sessions", start: startModern, change: func(c *config.Config) { c.Era = sessionless.Modern },
			sessions: third, resting: 2, ways: translatedWays,
		},
		{name: "by the launcher", start: startLauncher, sessions: third, resting: 2, ways: ways},
		{
			name: "one process for all", start: startDirect, change: func(c *config.Config) { c.Shared = true }, sessions: *leakSessions, resting: 2,
			ways: slices.DeleteFunc(slices.Clone(ways), func(w way) bool { return w.kills }),
		},
	}
}

// R01, R03, R22: however sessions end, nothing of them is left: no process, no
// descriptor, no goroutine, no memory. Adapters of all kinds run side by side, since most
// of the time goes by until what was abandoned is given up. It counts what the whole
// process has, so no test may run beside it.
func TestNothingIsLeftBehind(t *testing.T) {
	var watches []*leakWatch
	for _, kind := range leakKinds() {
		mark := "SLIPWAY_LEAK_TEST=" + rand.Text()
		starter, parent := kind.start(t, append(os.Environ(), mark))
		adapter, url := startAdapterBy(t, newListener(t), starter, func(c *config.Config) {
			c.MaxSessions = 320
			// What was abandoned is given up soon.
			c.IdleTimeout, c.CallTimeout, c.ParkTimeout = time.Second, 2*time.Second, time.Second
			c.ConcurrentStarts = 16
			c.LegacySSE = true
			if kind.change != nil {
				kind.change(c)
			}
		})
		watches = append(watches, &leakWatch{kind: kind, url: url, adapter: adapter, parent: parent, mark: mark})
	}
	abandonAll(t, watches, func(sessions int) int { return min(leakWarmUp, sessions) })
	before := rest(t, watches)
	began := time.Now()
	abandonAll(t, watches, func(sessions int) int { return sessions })
	took := time.Since(began)
	await(t, watches, before)
	for i, w := range watches {
		after := w.read(t)
		t.Logf("%s: %d sessions", w.kind.name, w.kind.sessions)
		t.Logf("before: %s", before[i])
		t.Logf("after:  %s", after)
		after.compare(t, before[i])
	}
	t.Logf("all of them in %s", took.Round(time.Millisecond))
}

// abandonAll abandons sessions of all kinds, as many as asked for.
func abandonAll(t *testing.T, watches []*leakWatch, sessions func(of int) int) {
	t.Helper()
	var running sync.WaitGroup
	for _, w := range watches {
		running.Go(func() { abandon(t, w, sessions(w.kind.sessions)) })
	}
	running.Wait()
}

// abandon opens sessions, a few at a time, and leaves each in another way.
func abandon(t *testing.T, watch *leakWatch, sessions int) {
	t.Helper()
	var running sync.WaitGroup
	slots := make(chan struct{}, leakAtATime)
	for n, round := 0, 0; n < sessions && !t.Failed(); round++ {
		for _, w := range watch.kind.ways {
			if w.every != 0 && round%w.every != 1 {
				continue
			}
			n++
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
				defer cancel()
				if err := w.leave(ctx, watch.url); err != nil {
					t.Errorf("%s: %s, round %d: %v", watch.kind.name, w.name, round, err)
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
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	if err := host.WaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
	return host, command.Process.Pid
}

// leakWatch counts what sessions could leave behind.
type leakWatch struct {
	kind    leakKind
	url     string
	adapter *Adapter
	parent  int    // of the servers' processes: this one or the launcher
	mark    string // in the environment of every process that has to do with them
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
		sessions: w.adapter.env.Sessions.Len(), goroutines: runtime.NumGoroutine(),
		descriptors: entries(t, "/proc/self/fd"), parentDescriptors: entries(t, fmt.Sprintf("/proc/%d/fd", w.parent)),
	}
	f.processes, f.zombies = w.processes(t)
	return f
}

// processes counts the processes that carry the mark, whatever their parent is, and the
// zombies that no parent has reaped.
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
	f := w.counts(t)
	// A leak is in every reading. Pooled buffers of 64 KiB, such as a keeper uses while it pings
	// its server, are probably not.
	for range 3 {
		runtime.GC() // pools keep things for one collection
		debug.FreeOSMemory()
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		if f.heap == 0 || memory.HeapAlloc < f.heap {
			f.heap, f.objects = memory.HeapAlloc, memory.HeapObjects
		}
	}
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
func rest(t *testing.T, watches []*leakWatch) []traces {
	t.Helper()
	const still = 15
	last := make([]traces, len(watches))
	seen := 0
	gomega.NewWithT(t).Eventually(func() string {
		for i, w := range watches {
			now := w.counts(t)
			if now != last[i] || now.sessions != 0 || now.processes != w.kind.resting || now.zombies != 0 {
				last[i], seen = now, -1
			}
		}
		if seen++; seen < still {
			return fmt.Sprint(last)
		}
		return ""
	}).WithTimeout(hang.Guard).WithPolling(20 * time.Millisecond).Should(gomega.BeEmpty())
	for i, w := range watches {
		last[i] = w.read(t)
	}
	return last
}

// await waits until everything that can be counted is as it was.
func await(t *testing.T, watches []*leakWatch, before []traces) {
	t.Helper()
	for i, w := range watches {
		gomega.NewWithT(t).Eventually(func() string {
			now := w.counts(t)
			if now.sessions == 0 && now.processes == w.kind.resting && now.zombies == 0 && now.goroutines <= before[i].goroutines &&
				now.descriptors <= before[i].descriptors && now.parentDescriptors <= before[i].parentDescriptors {
				return ""
			}
			return now.String()
		}).WithTimeout(hang.Guard).WithPolling(20*time.Millisecond).Should(gomega.BeEmpty(), "%s: before it was %s", w.kind.name, before[i])
	}
}

// compare looks at memory, which is never the same to the byte.
func (f traces) compare(t *testing.T, before traces) {
	t.Helper()
	if most := before.heap + leakHeap + leakHeapEach*uint64(*leakSessions); f.heap > most {
		t.Errorf("the live heap grew by %d bytes, more than %d", f.heap-before.heap, most-before.heap)
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

package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// writeFiles writes files under a directory, by path.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	v1Mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs none rw\n" +
		"35 31 0:32 /kubepods/pod1/c1 /sys/fs/cgroup/memory ro - cgroup none rw,memory\n" +
		"39 31 0:36 /kubepods/pod1/c1 /sys/fs/cgroup/pids ro - cgroup none rw,pids\n"
	v1Paths  = "8:pids:/kubepods/pod1/c1\n4:memory:/kubepods/pod1/c1\n0::/\n"
	v2Mounts = "29 22 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 none rw\n"
	v2Paths  = "0::/\n"
)

// container is the cgroup files of a container with these figures.
func container(t *testing.T, version int, memory, memoryLimit, pids, pidLimit string) string {
	t.Helper()
	files := map[string]string{
		"proc/self/mountinfo":               v2Mounts,
		"proc/self/cgroup":                  v2Paths,
		"sys/fs/cgroup/memory.current":      memory + "\n",
		"sys/fs/cgroup/memory.max":          memoryLimit + "\n",
		"sys/fs/cgroup/memory.stat":         "anon 1\nfile 2000000\ninactive_file 1000000\n",
		"sys/fs/cgroup/memory.events":       "low 0\noom 3\noom_kill 2\noom_group_kill 0\n",
		"sys/fs/cgroup/pids.current":        pids + "\n",
		"sys/fs/cgroup/pids.max":            pidLimit + "\n",
		"sys/fs/cgroup/memory/not-a-cgroup": "",
	}
	if version == 1 {
		files = map[string]string{
			"proc/self/mountinfo":                        v1Mounts,
			"proc/self/cgroup":                           v1Paths,
			"sys/fs/cgroup/memory/memory.usage_in_bytes": memory + "\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": memoryLimit + "\n",
			"sys/fs/cgroup/memory/memory.stat":           "inactive_file 5\ntotal_inactive_file 1000000\n",
			"sys/fs/cgroup/memory/memory.oom_control":    "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
			"sys/fs/cgroup/pids/pids.current":            pids + "\n",
			"sys/fs/cgroup/pids/pids.max":                pidLimit + "\n",
		}
	}
	root := t.TempDir()
	writeFiles(t, root, files)
	return root
}

func TestCgroupsAreRead(t *testing.T) {
	tests := map[string]struct {
		version int
		limits  [4]string
		want    usage
	}{
		"v2":                           {2, [4]string{"51000000", "100000000", "7", "99"}, usage{50000000, 100000000, 7, 99}},
		"v2 unlimited":                 {2, [4]string{"51000000", "max", "7", "max"}, usage{50000000, 0, 7, 0}},
		"v1":                           {1, [4]string{"51000000", "100000000", "7", "99"}, usage{50000000, 100000000, 7, 99}},
		"v1 unlimited":                 {1, [4]string{"51000000", "9223372036854771712", "7", "max"}, usage{50000000, 0, 7, 0}},
		"cache counts more than it is": {2, [4]string{"5", "100", "7", "99"}, usage{0, 100, 7, 99}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			found := findCgroups(container(t, test.version, test.limits[0], test.limits[1], test.limits[2], test.limits[3]))
			if diff := cmp.Diff(test.want, found.usage(), cmp.AllowUnexported(usage{})); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
			if kills := found.oomKills(); kills != 2 {
				t.Errorf("%d kills, want 2", kills)
			}
		})
	}
	t.Run("nothing there", func(t *testing.T) {
		found := findCgroups(t.TempDir())
		if diff := cmp.Diff(usage{}, found.usage(), cmp.AllowUnexported(usage{})); diff != "" || found.oomKills() != 0 {
			t.Errorf("usage (-want +got):\n%s", diff)
		}
	})
	t.Run("this machine", func(t *testing.T) {
		t.Logf("%+v: %+v", findCgroups("/"), findCgroups("/").usage())
	})
	t.Run("cgroup below the mount", func(t *testing.T) {
		root := container(t, 2, "1", "max", "1", "max")
		writeFiles(t, root, map[string]string{
			"proc/self/cgroup":                  "0::/user.slice\n",
			"sys/fs/cgroup/user.slice/pids.max": "5",
		})
		if got := findCgroups(root).usage().pidLimit; got != 5 {
			t.Errorf("limit %d, want 5", got)
		}
	})
}

func TestR05RefusedNearTheLimits(t *testing.T) {
	tests := map[string]struct {
		limits [4]string
		want   Reason // or none
	}{
		"room":               {[4]string{"91000000", "100000000", "68", "100"}, ""},
		"no room for pids":   {[4]string{"91000000", "100000000", "69", "100"}, ReasonPIDs},
		"no room for memory": {[4]string{"91000001", "100000000", "68", "100"}, ReasonMemory},
		"unlimited":          {[4]string{"91000001", "max", "69", "max"}, ""},
	}
	for name, test := range tests {
		for version := 1; version <= 2; version++ {
			t.Run(fmt.Sprintf("%s v%d", name, version), func(t *testing.T) {
				t.Parallel()
				limits := test.limits
				if version == 1 && limits[1] == "max" {
					limits[1] = strconv.Itoa(1<<63 - 4096)
				}
				root := container(t, version, limits[0], limits[1], limits[2], limits[3])
				host, _ := startPair(t, []string{testRoot + "=" + root}, "echo")
				process, err := host.Spawn(t.Context(), "x")
				if err == nil {
					process.abandon()
				}
				refused, _ := errors.AsType[*RefusedError](err)
				if test.want == "" && err != nil || test.want != "" && (refused == nil || refused.Reason != test.want) {
					t.Errorf("error %v, want reason %q", err, test.want)
				}
			})
		}
	}
}

func TestR05ForkRefusedByTheKernel(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.ENOMEM} {
		t.Run(errno.Error(), func(t *testing.T) {
			t.Parallel()
			host, l := startPair(t, []string{fmt.Sprintf("%s=%d", testErrno, int(errno))}, "echo")
			first := spawn(t, host)
			theirs := descriptors(t, l.Process.Pid)
			_, err := host.Spawn(t.Context(), "x")
			if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Reason != ReasonFork || refused.Message != errno.Error() {
				t.Errorf("error %v (%T), want a refusal for fork", err, err)
			}
			eventually(t, "no descriptor is left", func() bool { return descriptors(t, l.Process.Pid) <= theirs })
			echoes(t, first)
			echoes(t, spawn(t, host))
		})
	}
}

// limitedCgroup is a real cgroup with a limit of processes, where that is possible.
func limitedCgroup(t *testing.T) (dir string, limit func(int)) {
	t.Helper()
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0); err != nil {
		t.Skip("not privileged")
	}
	dir = fmt.Sprintf("/sys/fs/cgroup/pids/launcher-test-%d-%s", os.Getpid(), filepath.Base(t.Name()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no cgroup of our own: %v", err)
	}
	t.Cleanup(func() {
		eventually(t, "the cgroup is removed", func() bool { return os.Remove(dir) == nil })
	})
	return dir, func(pids int) {
		if err := os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(pids)), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestR05RealPIDLimit(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		env  []string
		room func(now uint64) int
		want Reason
	}{
		"seen":      {nil, func(now uint64) int { return int(now) + pidReserve + 2 }, ReasonPIDs},
		"invisible": {[]string{testRoot + "=/nowhere"}, func(now uint64) int { return int(now) + 3 }, ReasonFork},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, limit := limitedCgroup(t)
			host, l := startPair(t, append(test.env, testJoin+"="+dir), "=cat")
			first := spawn(t, host)
			echoes(t, first)
			limit(test.room(number(dir, "pids.current")))
			processes := []*Process{first}
			var err error
			for err == nil && len(processes) < 50 {
				var process *Process
				if process, err = host.Spawn(t.Context(), "x"); err == nil {
					processes = append(processes, process)
				}
			}
			if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Reason != test.want {
				t.Fatalf("error %v, want reason %q", err, test.want)
			}
			t.Logf("%d started, then: %v", len(processes), err)
			for range 20 {
				_, _ = host.Spawn(t.Context(), "x")
			}
			for _, process := range processes {
				echoes(t, process)
			}
			processes[len(processes)-1].abandon()
			exitOf(t, processes[len(processes)-1])
			eventually(t, "there is room again", func() bool {
				process, err := host.Spawn(t.Context(), "x")
				if err == nil {
					process.abandon()
				}
				return err == nil
			})
			for _, process := range processes {
				process.abandon()
			}
			if strings.Contains(l.log.String(), "fatal error") {
				t.Errorf("launcher:\n%s", l.log)
			}
		})
	}
}

func TestOutOfMemoryIsTold(t *testing.T) {
	counters := map[int]string{1: "sys/fs/cgroup/memory/memory.oom_control", 2: "sys/fs/cgroup/memory.events"}
	for version, counter := range counters {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			t.Parallel()
			root := container(t, version, "0", "100000000", "1", "100")
			direct := newDirect(t, Options{Command: helperCommand("echo"), root: root})
			kill := func() Exit {
				process := spawn(t, direct)
				echoes(t, process)
				if err := syscall.Kill(process.PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				return exitOf(t, process)
			}
			if exit := kill(); exit.OOM {
				t.Error("a plain KILL is taken for memory")
			}
			writeFiles(t, root, map[string]string{counter: "oom_kill_disable 0\noom_kill 3\n"})
			process := spawn(t, direct)
			process.Stop(0)
			if exit := exitOf(t, process); exit.OOM {
				t.Error("our own KILL is taken for memory")
			}
			if exit := kill(); !exit.OOM {
				t.Error("a KILL with the counter moved is not taken for memory")
			}
			if exit := kill(); exit.OOM {
				t.Error("one count is used twice")
			}
		})
	}
}

// R05: processes that start at the same time are not all promised the same room.
func TestR05RoomIsKeptForTheYoung(t *testing.T) {
	// The count in this container stays at 1: only the reserve can refuse.
	super := &supervisor{limits: findCgroups(container(t, 2, "1", "max", "1", "60"))}
	synctest.Test(t, func(t *testing.T) {
		for range 2 { // they grow up
			for n := range 3 {
				if err := super.findRoom(); err != nil {
					t.Errorf("process %d: %v", n+1, err)
				}
			}
			if refused, ok := errors.AsType[*RefusedError](super.findRoom()); !ok || refused.Reason != ReasonPIDs {
				t.Errorf("process 4: %v, want reason %q", refused, ReasonPIDs)
			}
			time.Sleep(youth + 1)
		}
	})
}

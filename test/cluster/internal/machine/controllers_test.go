package machine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeUnified is a directory that behaves as the root of version 2 does. The
// controllers in use cannot be disabled.
func fakeUnified(t *testing.T, available, passedOn string, inUse ...string) unifiedRoot {
	t.Helper()
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cgroup.controllers", available)
	write("cgroup.subtree_control", passedOn)
	u := unifiedRoot{dir: dir}
	u.change = func(change string) error {
		now, err := u.read("cgroup.subtree_control")
		if err != nil {
			return err
		}
		name := change[1:]
		if !slices.Contains(strings.Fields(available), name) {
			return syscall.ENOENT
		}
		if change[0] == '-' && slices.Contains(inUse, name) {
			return syscall.EBUSY
		}
		now = slices.DeleteFunc(now, func(other string) bool { return other == name })
		if change[0] == '+' {
			now = append(now, name)
		}
		write("cgroup.subtree_control", strings.Join(now, " "))
		return nil
	}
	return u
}

func TestControllersArePassedOnAndRestored(t *testing.T) {
	tests := map[string]struct {
		available, before string
		inUse             []string
		during, after     []string
		refused           bool
	}{
		"none before":        {"cpuset cpu io memory pids rdma", "", nil, []string{"cpu", "cpuset", "io", "memory", "pids"}, []string{}, false},
		"as systemd has it":  {"cpuset cpu io memory pids", "memory pids", nil, []string{"cpu", "cpuset", "io", "memory", "pids"}, []string{"memory", "pids"}, false},
		"all before":         {"cpu memory", "cpu memory", nil, []string{"cpu", "memory"}, []string{"cpu", "memory"}, false},
		"one not for us":     {"cpu rdma", "rdma", nil, []string{"cpu", "rdma"}, []string{"rdma"}, false},
		"others came to use": {"cpu io memory", "memory", []string{"cpu"}, []string{"cpu", "io", "memory"}, []string{"cpu", "memory"}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			u := fakeUnified(t, test.available, test.before, test.inUse...)
			before, err := u.passedOn()
			if err != nil || before == nil {
				t.Fatalf("before: %v, %v", before, err)
			}
			if err := u.passOn(); err != nil {
				t.Fatal(err)
			}
			during, err := u.passedOn()
			if diff := cmp.Diff(test.during, during); diff != "" || err != nil {
				t.Errorf("passed on: %v (-want +got):\n%s", err, diff)
			}
			if err := u.restore(before); errors.Is(err, syscall.EBUSY) != test.refused || err != nil && !test.refused {
				t.Errorf("restore: %v", err)
			}
			after, err := u.passedOn()
			if diff := cmp.Diff(test.after, after); diff != "" || err != nil {
				t.Errorf("restored: %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestUnknownControllersStay(t *testing.T) {
	if err := RestorePassedOn(nil); err != nil {
		t.Error(err)
	}
}

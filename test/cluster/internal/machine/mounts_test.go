package machine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const mountinfo = `22 27 0:21 / /proc rw,relatime - proc none rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
31 23 0:28 / /sys/fs/cgroup rw - tmpfs none rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup none rw,cpu
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 none rw
50 27 0:50 / /state/kubelet/pods/a\040b/vol rw - tmpfs none rw
51 27 0:51 / /state rw - tmpfs none rw
52 27 0:52 / /state/a rw - overlay none rw,lowerdir=/x:/y
53 52 0:53 / /state/a/proc rw - proc none rw
54 52 0:54 / /state/a rw - tmpfs none rw
55 27 0:55 / /state-of-others rw - tmpfs none rw
`

func parse(t *testing.T, content string) []Mount {
	t.Helper()
	mounts, err := parseMountinfo(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return mounts
}

func TestParseMountinfo(t *testing.T) {
	want := []Mount{
		{"/proc", "proc"},
		{"/", "ext4"},
		{"/sys/fs/cgroup", "tmpfs"},
		{"/sys/fs/cgroup/cpu", "cgroup"},
		{"/sys/fs/cgroup/unified", "cgroup2"},
		{"/state/kubelet/pods/a b/vol", "tmpfs"},
		{"/state", "tmpfs"},
		{"/state/a", "overlay"},
		{"/state/a/proc", "proc"},
		{"/state/a", "tmpfs"},
		{"/state-of-others", "tmpfs"},
	}
	if diff := cmp.Diff(want, parse(t, mountinfo)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, line := range map[string]string{
		"no dash":  "22 27 0:21 / /proc rw,relatime proc none rw",
		"too soon": "22 27 - proc none",
		"cut off":  "22 27 0:21 / /proc rw -",
	} {
		if _, err := parseMountinfo(strings.NewReader(line)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestUnescape(t *testing.T) {
	for escaped, want := range map[string]string{
		`/plain`:        "/plain",
		`/a\040b`:       "/a b",
		`/a\134b\011c`:  "/a\\b\tc",
		`/end\04`:       `/end\04`,
		`/not\999octal`: `/not\999octal`,
	} {
		if got := unescape(escaped); got != want {
			t.Errorf("%s: %q, want %q", escaped, got, want)
		}
	}
}

func TestMountsUnderComeDeepestAndLatestFirst(t *testing.T) {
	want := []string{"/state/kubelet/pods/a b/vol", "/state/a/proc", "/state/a", "/state/a", "/state"}
	if diff := cmp.Diff(want, mountsUnder(parse(t, mountinfo), "/state")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCgroupRoots(t *testing.T) {
	tests := map[string]struct {
		mountinfo string
		want      []string
	}{
		"version 1 and hybrid": {mountinfo, []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"}},
		"version 2":            {"31 23 0:28 / /sys/fs/cgroup rw - cgroup2 none rw\n", []string{"/sys/fs/cgroup"}},
		"mounted elsewhere":    {"31 23 0:28 / /container/sys/fs/cgroup rw - cgroup2 none rw\n", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, cgroupRootsOf(parse(t, test.mountinfo))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

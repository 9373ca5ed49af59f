package version

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestResolve(t *testing.T) {
	embedded := func(settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-embedded"}, Settings: settings}
	}
	tests := map[string]struct {
		version, commit string
		build           *debug.BuildInfo
		want            Info
	}{
		"the linker's values win": {
			version: "v1.2.3", commit: "abc",
			build: embedded(debug.BuildSetting{Key: "vcs.revision", Value: "def"}),
			want:  Info{Version: "v1.2.3", Commit: "abc"},
		},
		"embedded values fill the gaps": {
			build: embedded(debug.BuildSetting{Key: "vcs.revision", Value: "def"}),
			want:  Info{Version: "v0.0.0-embedded", Commit: "def"},
		},
		"a changed tree is marked": {
			version: "v1.2.3",
			build: embedded(
				debug.BuildSetting{Key: "vcs.modified", Value: "true"},
				debug.BuildSetting{Key: "vcs.revision", Value: "def"},
			),
			want: Info{Version: "v1.2.3", Commit: "def-dirty"},
		},
		"modified without a revision names no commit": {
			build: embedded(debug.BuildSetting{Key: "vcs.modified", Value: "true"}),
			want:  Info{Version: "v0.0.0-embedded", Commit: "unknown"},
		},
		"nothing known": {
			want: Info{Version: "unknown", Commit: "unknown"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.want.GoVersion = runtime.Version()
			got := resolve(test.version, test.commit, test.build)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("resolve (-want +got):\n%s", diff)
			}
		})
	}
}

func TestString(t *testing.T) {
	got := Info{Version: "v1.2.3", Commit: "abc", GoVersion: "go1.26.8"}.String()
	if want := "v1.2.3 (commit abc, go1.26.8)"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}

func TestGetIsComplete(t *testing.T) {
	info := Get()
	if info.Version == "" || info.Commit == "" || info.GoVersion == "" {
		t.Errorf("Get() leaves a field empty: %+v", info)
	}
}

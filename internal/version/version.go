// Package version says which build of Slipway a binary is. It imports nothing
// outside the standard library, because the launcher may not either.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// unknown stands where neither the linker nor the Go toolchain left a value.
const unknown = "unknown"

// version and commit are set by the linker:
//
//	-X github.com/slipway-mcp/slipway/internal/version.version=v0.1.0
//	-X github.com/slipway-mcp/slipway/internal/version.commit=0123abc
var (
	version string
	commit  string
)

// Info is what a binary knows about its own build.
type Info struct {
	Version   string
	Commit    string
	GoVersion string
}

// Get returns the build of the running binary. What the linker was not told is
// taken from the build information that the Go toolchain embeds, so that a
// plain "go build" or "go install" is not nameless either.
func Get() Info {
	build, _ := debug.ReadBuildInfo()
	return resolve(version, commit, build)
}

// String is the one line that --version prints.
func (i Info) String() string {
	return fmt.Sprintf("%s (commit %s, %s)", i.Version, i.Commit, i.GoVersion)
}

func resolve(version, commit string, build *debug.BuildInfo) Info {
	info := Info{Version: version, Commit: commit, GoVersion: runtime.Version()}
	if build != nil {
		if info.Version == "" {
			info.Version = build.Main.Version
		}
		if info.Commit == "" {
			info.Commit = revision(build.Settings)
		}
	}
	if info.Version == "" {
		info.Version = unknown
	}
	if info.Commit == "" {
		info.Commit = unknown
	}
	return info
}

// revision is the commit the toolchain saw, marked when the tree had changes
// that no commit holds: such a build cannot be made again from the commit.
func revision(settings []debug.BuildSetting) string {
	var revision, modified string
	for _, setting := range settings {
		switch setting.Key {
		case "vcs.revision":
			revision = setting.Value
		case "vcs.modified":
			modified = setting.Value
		}
	}
	if revision != "" && modified == "true" {
		return revision + "-dirty"
	}
	return revision
}

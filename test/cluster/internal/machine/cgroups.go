package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const unified = "/sys/fs/cgroup"

// cgroupRoots are the roots of every hierarchy: one of version 2, or one for
// each controller of version 1.
func cgroupRoots() ([]string, error) {
	mounts, err := Mounts()
	if err != nil {
		return nil, err
	}
	return cgroupRootsOf(mounts), nil
}

func cgroupRootsOf(mounts []Mount) []string {
	var roots []string
	for _, mount := range mounts {
		inside := mount.Point == unified || strings.HasPrefix(mount.Point, unified+"/")
		if inside && (mount.FSType == "cgroup" || mount.FSType == "cgroup2") {
			roots = append(roots, mount.Point)
		}
	}
	slices.Sort(roots)
	return slices.Compact(roots)
}

// CreateCgroup makes the group in every hierarchy.
func CreateCgroup(name string) error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	if len(roots) == 0 {
		return fmt.Errorf("create cgroup %s: nothing is mounted at %s", name, unified)
	}
	for _, root := range roots {
		if root == unified {
			if err := unifiedAt(root).passOn(); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			return fmt.Errorf("create cgroup: %w", err)
		}
	}
	return nil
}

// cgroupDirs lists the group and the groups below it, deepest first.
func cgroupDirs(name string) ([]string, error) {
	roots, err := cgroupRoots()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, root := range roots {
		err := filepath.WalkDir(filepath.Join(root, name), func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // Never there, or removed by its owner while we look.
			}
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list cgroups below %s: %w", root, err)
		}
	}
	slices.Reverse(dirs) // A parent is walked before its children.
	return dirs, nil
}

// CgroupDirs lists the group and the groups below it in every hierarchy.
func CgroupDirs(name string) ([]string, error) { return cgroupDirs(name) }

// RemoveCgroup kills whatever runs in the group and below it and removes it. A
// process cannot leave its group unprivileged, so that finds every container's
// processes, however they were started.
func RemoveCgroup(ctx context.Context, name string) error {
	for {
		dirs, err := cgroupDirs(name)
		if err != nil {
			return err
		}
		var last error
		for _, dir := range dirs {
			killCgroup(dir, name)
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				last = err
			}
		}
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup: %w", last)
		case <-time.After(20 * time.Millisecond): // The killed take a moment to go.
		}
	}
}

// killCgroup may lose a race against processes that end or start: its caller
// comes again. Membership is checked once more when the handle is taken, so
// that a PID which changed hands in between is spared.
func killCgroup(dir, name string) {
	content, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return
	}
	for field := range strings.FieldsSeq(string(content)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			continue
		}
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		member, err := os.ReadFile(filepath.Join("/proc", field, "cgroup"))
		if err == nil && strings.Contains(string(member), ":/"+name+"/") {
			_ = process.Kill()
		}
		_ = process.Release()
	}
}

package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// controllers are those that the kubelet and runc need.
var controllers = []string{"cpu", "cpuset", "hugetlb", "io", "memory", "pids"}

// unifiedRoot is the root of cgroups of version 2. The groups below it have only
// those controllers that it passes on.
type unifiedRoot struct {
	dir string
	// change writes to cgroup.subtree_control; a test stands in for the kernel.
	change func(string) error
}

func unifiedAt(dir string) unifiedRoot {
	return unifiedRoot{dir: dir, change: func(change string) error {
		return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(change), 0o600)
	}}
}

// PassedOn lists the controllers that the root of version 2 passes on; nil on a
// machine with version 1, which has no such choice.
func PassedOn() ([]string, error) {
	roots, err := cgroupRoots()
	if err != nil || !slices.Contains(roots, unified) {
		return nil, err
	}
	return unifiedAt(unified).passedOn()
}

// RestorePassedOn undoes what CreateCgroup has changed since PassedOn. The kernel
// refuses it for a controller that others have come to use, of which the error
// then tells; there is nothing else to be done about it.
func RestorePassedOn(before []string) error {
	if before == nil {
		return nil // Version 1, or PassedOn was not called.
	}
	return unifiedAt(unified).restore(before)
}

func (u unifiedRoot) read(name string) ([]string, error) {
	content, err := os.ReadFile(filepath.Join(u.dir, name))
	if err != nil {
		return nil, fmt.Errorf("read cgroup controllers: %w", err)
	}
	return strings.Fields(string(content)), nil
}

// passedOn is never nil, so that none and unknown differ.
func (u unifiedRoot) passedOn() ([]string, error) {
	names, err := u.read("cgroup.subtree_control")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

func (u unifiedRoot) passOn() error {
	available, err := u.read("cgroup.controllers")
	if err != nil {
		return err
	}
	now, err := u.passedOn()
	if err != nil {
		return err
	}
	for _, name := range controllers {
		if !slices.Contains(available, name) || slices.Contains(now, name) {
			continue
		}
		if err := u.change("+" + name); err != nil {
			return fmt.Errorf("enable cgroup controller %s: %w", name, err)
		}
	}
	return nil
}

func (u unifiedRoot) restore(before []string) error {
	now, err := u.passedOn()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range now {
		if !slices.Contains(controllers, name) || slices.Contains(before, name) {
			continue // Not our doing.
		}
		if err := u.change("-" + name); err != nil {
			errs = append(errs, fmt.Errorf("disable cgroup controller %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Package statedir marks a directory as a cluster's. What bears no mark is never
// filled nor removed: the directory is named by an environment variable, and
// that may name anything.
package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	mark = "provider"
	// Lock is the file that commands lock; it may be there before the mark.
	Lock = "lock"
)

// Provider returns the provider whose cluster is in the directory, "" if none.
func Provider(dir string) string {
	content, err := os.ReadFile(filepath.Join(dir, mark))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// Claim marks the directory as the provider's.
func Claim(dir, provider string) error {
	switch owner := Provider(dir); owner {
	case provider:
		return nil
	case "":
	default:
		return fmt.Errorf("claim state directory %s: it is of provider %s", dir, owner)
	}
	foreign, err := Foreign(dir)
	if err != nil {
		return err
	}
	if foreign {
		return fmt.Errorf("claim state directory %s: it holds files that are not a cluster's", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("claim state directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, mark), []byte(provider+"\n"), 0o600); err != nil {
		return fmt.Errorf("claim state directory: %w", err)
	}
	return nil
}

// Foreign tells whether the directory bears no mark and holds files.
func Foreign(dir string) (bool, error) {
	if Provider(dir) != "" {
		return false, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read state directory: %w", err)
	}
	for _, entry := range entries {
		// A mark without content is one that a crash kept from being written.
		if entry.Name() != Lock && entry.Name() != mark {
			return true, nil
		}
	}
	return false, nil
}

// Remove removes the directory and what is in it, the mark last, so that it can
// be done again when it is interrupted.
func Remove(dir string) error {
	foreign, err := Foreign(dir)
	if err != nil {
		return err
	}
	if foreign {
		return fmt.Errorf("remove state directory %s: it holds files that are not a cluster's", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove state directory: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == mark || entry.Name() == Lock {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("remove state directory: %w", err)
		}
	}
	return os.RemoveAll(dir)
}

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/slipway-mcp/slipway/hack/internal/gotest"
)

// book is the file with the results. A line has, between tabs: when, the source, the
// stage, how many times, the package, the seconds, and "passed" or the tests that failed.
type book struct {
	file    *os.File
	source  string
	entries []entry // of this source
}

type entry struct {
	stage, path, outcome string
	times                int
}

const passed = "passed"

// openBook reads what the file has of the source, and lets results be added.
func openBook(path, source string) (*book, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("make directory of results: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open results: %w", err)
	}
	b := &book{file: file, source: source}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 7 || fields[1] != source {
			continue
		}
		e := entry{stage: fields[2], path: fields[4], outcome: fields[6]}
		if _, err := fmt.Sscan(fields[3], &e.times); err != nil {
			continue // a line that was cut off
		}
		b.entries = append(b.entries, e)
	}
	if err := errors.Join(lines.Err(), endLastLine(file)); err != nil {
		return nil, fmt.Errorf("read results: %w", errors.Join(err, file.Close()))
	}
	return b, nil
}

// endLastLine keeps the next line apart from one that was cut off.
func endLastLine(file *os.File) error {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := file.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = file.WriteString("\n")
	return err
}

func (b *book) close() error { return b.file.Close() }

// has says whether a package has been through a stage.
func (b *book) has(stage, path string) bool {
	for _, e := range b.entries {
		if e.stage == stage && e.path == strings.TrimPrefix(path, gotest.Module+"/") {
			return true
		}
	}
	return false
}

// add records a package that has been through a stage.
func (b *book) add(s stage, ended gotest.Package) error {
	e := entry{stage: s.name, path: ended.Path, times: s.times, outcome: passed}
	if len(ended.Failures) > 0 {
		names := map[string]bool{}
		var failed []string
		for _, failure := range ended.Failures {
			name := failure.Test
			if name == "" {
				name = "(the package)"
			}
			if !names[name] {
				failed = append(failed, name)
			}
			names[name] = true
		}
		e.outcome = "FAILED " + strings.Join(failed, " ")
	}
	b.entries = append(b.entries, e)
	_, err := fmt.Fprintf(b.file, "%s\t%s\t%s\t%d\t%s\t%.1f\t%s\n", now(), b.source, e.stage, e.times, e.path, ended.Took.Seconds(), e.outcome)
	if err != nil {
		return fmt.Errorf("record result: %w", err)
	}
	return nil
}

// verdict writes what all stages came to.
func (b *book) verdict(w io.Writer) error {
	failures := 0
	for _, s := range stages {
		packages, failed := 0, 0
		for _, e := range b.entries {
			if e.stage != s.name {
				continue
			}
			packages++
			if e.outcome != passed {
				failed++
				_, _ = fmt.Fprintf(w, "%s %s: %s\n", e.stage, e.path, e.outcome)
			}
		}
		failures += failed
		_, _ = fmt.Fprintf(w, "%-12s %2d times: %d packages, %d of them failed\n", s.name, s.times, packages, failed)
	}
	if failures > 0 {
		return fmt.Errorf("%d packages failed, see %s", failures, b.file.Name())
	}
	return nil
}

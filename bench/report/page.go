package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/bench/stats"
)

// Write writes everything into a directory.
func Write(r *Run, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	results, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	files := map[string]string{"results.json": string(results) + "\n", "report.md": "# Benchmark of the adapter\n\n" + Markdown(r)}
	for _, w := range r.Workloads {
		files[w.Name+".svg"] = plot(r, w)
	}
	return write(dir, files)
}

func write(dir string, files map[string]string) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	return nil
}

// The markers of the page between which it is ours.
const (
	begin = "<!-- bench: begin; make bench-docs writes this -->"
	end   = "<!-- bench: end -->"
)

// plotted are the workloads whose plots the page has: the others are like them.
var plotted = []string{"calls-8", "calls-64", "reply-1m", "progress", "idle"}

// plots is where they are, beside the page.
const plots = "performance"

// WritePage puts the report into a page, between its markers, and plots beside it.
func WritePage(r *Run, path string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	text, err := splice(string(page), body(r))
	if err != nil {
		return fmt.Errorf("write page %s: %w", path, err)
	}
	dir := filepath.Join(filepath.Dir(path), plots)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	files := map[string]string{}
	for _, w := range r.Workloads {
		if slices.Contains(plotted, w.Name) {
			files[w.Name+".svg"] = plot(r, w)
		}
	}
	if err := write(dir, files); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

var errMarkers = errors.New("the markers of the generated part are not there, once and in order")

func splice(page, body string) (string, error) {
	before, rest, ok := strings.Cut(page, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed || strings.Contains(before+after, begin) || strings.Contains(before+after, end) {
		return "", errMarkers
	}
	return before + begin + "\n\n" + body + "\n" + end + after, nil
}

// body is the part of the page.
func body(r *Run) string {
	var b strings.Builder
	b.WriteString(facts(r))
	b.WriteString("\n### Goals\n\n" + tally(r) + "\n" + goalTable(r))
	if text := headroom(r); text != "" {
		b.WriteString("\n### The generator\n\n" + text)
	}
	for _, w := range r.Workloads {
		fmt.Fprintf(&b, "\n### %s\n\n", heading(w))
		if slices.Contains(plotted, w.Name) {
			fmt.Fprintf(&b, "![%s](%s/%s.svg)\n\n", w.Title, plots, w.Name)
		}
		b.WriteString(table(r, w))
	}
	return b.String()
}

// facts are where and when, and how far to trust it.
func facts(r *Run) string {
	var others, generator, voids []float64
	for _, s := range r.Samples {
		if s.Void != "" {
			voids = append(voids, 1)
			continue
		}
		if share, ok := s.Values["others"]; ok {
			others = append(others, share)
		}
		if share, ok := s.Values["generator"]; ok {
			generator = append(generator, share)
		}
	}
	m := r.Machine
	lines := []string{
		fmt.Sprintf("Measured on %s in %s, commit %s, seed %d: %d cells, %d of them void.", r.Started.UTC().Format("2006-01-02 15:04 UTC"), r.Took.Round(time.Second), m.Commit, r.Seed, len(r.Samples), len(voids)),
		fmt.Sprintf("%d CPUs (%s), %d GiB, Linux %s, %s, Node.js %s. The systems ran as user %d; %s", m.CPUs, m.Model, m.MemoryGB, m.Kernel, m.Go, m.Node, m.UID, pinning(r)),
	}
	if text := r.Lacks(); text != "" {
		lines = append(lines, text)
	}
	if r.Quick {
		lines = append(lines, "This was a quick run: it shows that everything works, and no more.")
	}
	if len(r.Replaced) > 0 {
		lines = append(lines, "Measured in runs of their own: "+strings.Join(r.Replaced, ", ")+".")
	}
	if len(others) > 0 {
		lines = append(lines, fmt.Sprintf("Others used %.1f %% of the machine in the median cell, %.1f %% in the worst; the generator %.0f %% of one CPU in the median cell.",
			100*stats.Median(others), 100*slices.Max(others), 100*stats.Median(generator)))
	}
	return strings.Join(lines, "\n") + "\n"
}

// pinning says what ran on CPUs of its own.
func pinning(r *Run) string {
	if slices.ContainsFunc(r.Workloads, func(w Workload) bool { return w.Pinned }) {
		return "only what is called “on one core” was pinned to CPUs."
	}
	return "nothing was pinned to a CPU."
}

// Lacks says which workloads this machine cannot do, if there are any.
func (r *Run) Lacks() string {
	if len(r.Skipped) == 0 {
		return ""
	}
	return "Not measured, because the bridge and the generator need a CPU each and there is only one: " + strings.Join(r.Skipped, ", ") + "."
}

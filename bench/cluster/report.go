package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/bench/stats"
)

// results are everything that was measured, as results.json has it.
type results struct {
	Started time.Time    `json:"started"`
	Cluster surroundings `json:"cluster"`
	Rounds  []round      `json:"rounds"`
}

// surroundings are where it was measured.
type surroundings struct {
	Nodes      int    `json:"nodes"`
	CPUs       int    `json:"cpus"`
	MaxPods    int    `json:"maxPods"`
	PodsBefore int    `json:"podsBefore"`
	Kubernetes string `json:"kubernetes"`
	Runtime    string `json:"runtime"`
	Kernel     string `json:"kernel"`
}

// round is one time of so many servers. All times are seconds.
type round struct {
	Servers     int                  `json:"servers"`
	Created     float64              `json:"created"`     // from the first request to the last answer
	AllVerified float64              `json:"allVerified"` // from the first request to the last server
	Stages      map[string][]float64 `json:"stages"`      // of each server, by the milestone that ends them
	Totals      []float64            `json:"totals"`      // of each server
	Bare        float64              `json:"bare"`        // from the first request for a bare pod to the last that is ready
}

func newRound(lines []*timeline, bare time.Duration) round {
	r := round{Servers: len(lines), Bare: bare.Seconds(), Stages: map[string][]float64{}}
	slices.SortFunc(lines, func(a, b *timeline) int { return a[asked].Compare(b[asked]) })
	first := lines[0][asked]
	for _, line := range lines {
		r.Created = max(r.Created, line[stored].Sub(first).Seconds())
		r.AllVerified = max(r.AllVerified, line[verified].Sub(first).Seconds())
		r.Totals = append(r.Totals, line.total().Seconds())
		for m, stage := range line.stages() {
			if milestone(m) != asked {
				r.Stages[milestoneNames[m]] = append(r.Stages[milestoneNames[m]], stage.Seconds())
			}
		}
	}
	return r
}

// rows are what the table has, in order, and which milestones end the stages that are
// added up in each.
var rows = []struct {
	name  string
	until []milestone
}{
	{"API: the MCPServer is stored", []milestone{stored}},
	{"API: the manager has created the Deployment", []milestone{deploymentSeen}},
	{"scheduling: ReplicaSet and pod are made", []milestone{replicaSetSeen, podSeen}},
	{"scheduling: the pod has a node", []milestone{podScheduled}},
	{"pod start: the adapter, a native sidecar, has started", []milestone{adapterStarted}},
	{"pod start: the server's container runs", []milestone{serverRunning}},
	{"adapter ready: the pod is Ready", []milestone{podReady}},
	{"verified: the MCPServer is Ready and Verified", []milestone{verified}},
}

// markdown is the table of all sizes. A cell is the median and the 95th percentile of
// all servers of all rounds.
func (r *results) markdown() string {
	sizes := map[int][]round{}
	for _, measured := range r.Rounds {
		sizes[measured.Servers] = append(sizes[measured.Servers], measured)
	}
	order := slices.Sorted(maps.Keys(sizes))
	var text strings.Builder
	fmt.Fprintf(&text, "Measured on %s: Kubernetes %s, %s, %d node(s), %d CPUs, Linux %s.\n\n", r.Started.Format("2006-01-02 15:04 MST"),
		r.Cluster.Kubernetes, r.Cluster.Runtime, r.Cluster.Nodes, r.Cluster.CPUs, r.Cluster.Kernel)
	line := func(name string, cell func([]round) string) {
		text.WriteString("| " + name + " |")
		for _, servers := range order {
			text.WriteString(" " + cell(sizes[servers]) + " |")
		}
		text.WriteString("\n")
	}
	line("seconds, p50 (p95)", func(rounds []round) string {
		return fmt.Sprintf("%d at once, %d round(s)", rounds[0].Servers, len(rounds))
	})
	text.WriteString("|---|" + strings.Repeat("---|", len(order)) + "\n")
	for _, row := range rows {
		line(row.name, func(rounds []round) string { return cell(stagesOf(rounds, row.until)) })
	}
	line("**from create to Ready and Verified**", func(rounds []round) string { return "**" + cell(totalsOf(rounds)) + "**" })
	line("the slowest server of all rounds", func(rounds []round) string { return fmt.Sprintf("%.2f", slices.Max(totalsOf(rounds))) })
	line("all created", func(rounds []round) string {
		return between(rounds, func(r round) float64 { return r.Created })
	})
	line("all verified, since the first was asked for", func(rounds []round) string {
		return between(rounds, func(r round) float64 { return r.AllVerified })
	})
	line("the same pods, created without Slipway: all ready", func(rounds []round) string {
		return between(rounds, func(r round) float64 { return r.Bare })
	})
	line("all verified ÷ bare pods ready", func(rounds []round) string {
		return between(rounds, func(r round) float64 { return r.AllVerified / r.Bare })
	})
	return text.String()
}

// stagesOf adds up stages of every server.
func stagesOf(rounds []round, until []milestone) (seconds []float64) {
	for _, r := range rounds {
		for server := range r.Servers {
			whole := 0.0
			for _, m := range until {
				whole += r.Stages[milestoneNames[m]][server]
			}
			seconds = append(seconds, whole)
		}
	}
	return seconds
}

func totalsOf(rounds []round) (seconds []float64) {
	for _, r := range rounds {
		seconds = append(seconds, r.Totals...)
	}
	return seconds
}

func cell(seconds []float64) string {
	return fmt.Sprintf("%.3f (%.3f)", stats.Median(seconds), stats.Quantile(seconds, 0.95))
}

// between is the median of rounds, and the least and the most if there are several.
func between(rounds []round, figure func(round) float64) string {
	var seconds []float64
	for _, r := range rounds {
		seconds = append(seconds, figure(r))
	}
	if len(seconds) == 1 {
		return fmt.Sprintf("%.2f", seconds[0])
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", stats.Median(seconds), slices.Min(seconds), slices.Max(seconds))
}

// write writes results.json and report.md.
func (r *results) write(dir string) error {
	content, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory for results: %w", err)
	}
	for name, content := range map[string][]byte{"results.json": append(content, '\n'), "report.md": []byte(r.markdown())} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return fmt.Errorf("write results: %w", err)
		}
	}
	return nil
}

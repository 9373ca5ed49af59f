// Package report turns what was measured into tables, plots and a page of the
// documentation.
package report

import (
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/bench/stats"
)

// Base is the system that ratios are to.
const Base = "L3"

// Kind says what part a system plays.
type Kind string

// The kinds of systems.
const (
	Bound   Kind = "bound"   // what is possible
	Ours    Kind = "ours"    // what this is about
	Control Kind = "control" // what one writes in an afternoon
	Peer    Kind = "peer"    // what others use
)

// System is something that was measured.
type System struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Kind  Kind   `json:"kind"`
}

// Metric is a number that a cell has.
type Metric struct {
	Key   string `json:"key"`
	Title string `json:"title"`
	// More says that more is better.
	More bool `json:"more,omitempty"`
	// Ratio says that the table has the ratio to the base, too.
	Ratio bool `json:"ratio,omitempty"`
}

// Workload is what systems had to do. Its first metric is what it is about.
type Workload struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	Metrics []Metric `json:"metrics"`
	// Pinned says that bridge and servers had one CPU, and the generator another.
	Pinned bool `json:"pinned,omitempty"`
}

// Sample is one cell: one system, one workload, one round, one fresh process.
type Sample struct {
	Workload string             `json:"workload"`
	System   string             `json:"system"`
	Round    int                `json:"round"`
	Values   map[string]float64 `json:"values,omitempty"`
	// Others is the share of the machine that neither we nor the system used.
	Others float64 `json:"others"`
	// Note says what a number does not.
	Note string `json:"note,omitempty"`
	// Void says why there are no values.
	Void string `json:"void,omitempty"`
}

// Machine is where it was.
type Machine struct {
	CPUs     int    `json:"cpus"`
	Model    string `json:"model"`
	MemoryGB int    `json:"memoryGB"`
	Kernel   string `json:"kernel"`
	Go       string `json:"go"`
	Node     string `json:"node,omitempty"`
	Commit   string `json:"commit,omitempty"`
	// UID is who the systems ran as.
	UID int `json:"uid"`
}

// Run is everything that was measured together.
type Run struct {
	Started   time.Time     `json:"started"`
	Took      time.Duration `json:"tookNanoseconds"`
	Quick     bool          `json:"quick,omitempty"`
	Seed      uint64        `json:"seed"`
	Machine   Machine       `json:"machine"`
	Systems   []System      `json:"systems"`
	Workloads []Workload    `json:"workloads"`
	Samples   []Sample      `json:"samples"`
	// Replaced are workloads that were measured in a run of their own.
	Replaced []string `json:"replaced,omitempty"`
	// Skipped are workloads that need two CPUs, where there was one.
	Skipped []string `json:"skipped,omitempty"`
}

// Replace takes the workloads of another run in place of its own. A workload is only
// ever compared within itself, so that is as good as one run.
func (r *Run) Replace(by *Run) {
	r.Took += by.Took
	r.Samples = slices.DeleteFunc(r.Samples, func(s Sample) bool {
		_, replaced := by.workload(s.Workload)
		return replaced
	})
	r.Samples = append(r.Samples, by.Samples...)
	r.Skipped = slices.DeleteFunc(r.Skipped, func(name string) bool {
		_, measured := by.workload(name)
		return measured
	})
	for _, w := range by.Workloads {
		r.Replaced = append(r.Replaced, w.Name+" ("+by.Machine.Commit+")")
		if _, known := r.workload(w.Name); !known {
			r.Workloads = append(r.Workloads, w)
		}
	}
}

// values are a system's, by round.
func (r *Run) values(workload, system, metric string) map[int]float64 {
	found := map[int]float64{}
	for _, sample := range r.Samples {
		if value, ok := sample.Values[metric]; ok && sample.Workload == workload && sample.System == system {
			found[sample.Round] = value
		}
	}
	return found
}

func (r *Run) summary(workload, system, metric string) stats.Summary {
	var all []float64
	for _, value := range r.values(workload, system, metric) {
		all = append(all, value)
	}
	return stats.Summarize(all)
}

func (r *Run) ratio(workload, system, base, metric string) stats.Ratio {
	return stats.Paired(r.values(workload, system, metric), r.values(workload, base, metric), r.Seed)
}

// bestPeer is the peer with the best median, or nothing if none has a value.
func (r *Run) bestPeer(workload string, metric Metric) (name string) {
	var best float64
	for _, system := range r.Systems {
		summary := r.summary(workload, system.Name, metric.Key)
		if system.Kind != Peer || summary.N == 0 {
			continue
		}
		if name == "" || (summary.Median > best) == metric.More {
			name, best = system.Name, summary.Median
		}
	}
	return name
}

// tookPart says whether a system was to be measured at all.
func (r *Run) tookPart(workload, system string) bool {
	return slices.ContainsFunc(r.Samples, func(s Sample) bool { return s.Workload == workload && s.System == system })
}

// notes are what the cells of a system say besides their numbers, each once.
func (r *Run) notes(workload, system string) (notes []string) {
	for _, sample := range r.Samples {
		if sample.Workload != workload || sample.System != system {
			continue
		}
		for _, note := range []string{sample.Note, sample.Void} {
			if note != "" && !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
	}
	return notes
}

// workload is the one of this name.
func (r *Run) workload(name string) (Workload, bool) {
	i := slices.IndexFunc(r.Workloads, func(w Workload) bool { return w.Name == name })
	if i < 0 {
		return Workload{}, false
	}
	return r.Workloads[i], true
}

package doctable

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Metric is what a registry says of one metric.
type Metric struct {
	Name, Type, Help string
	// Labels has the values of each label, or none if they are not known before the program has run for a while.
	Labels map[string][]string
}

// mostValues is how many values of a label a table lists.
const mostValues = 12

// described is how a prometheus.Desc prints its parts, which it has no methods for.
var described = regexp.MustCompile(`(?s)^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?constLabels: \{(.*?)\}, variableLabels: \{(.*?)\}\}$`)

// MetricsOf returns the metrics of a registry, also those without a sample. Only a counter may lack samples:
// otherwise nothing tells the type.
func MetricsOf(t *testing.T, registry *prometheus.Registry) map[string]*Metric {
	t.Helper()
	metrics := map[string]*Metric{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		metrics[family.GetName()] = sampled(family)
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(descriptions)
		close(descriptions)
	}()
	for description := range descriptions {
		parts := described.FindStringSubmatch(description.String())
		if parts == nil {
			t.Fatalf("a description has another form: %s", description)
		}
		name, help := unquoted(t, parts[1]), unquoted(t, parts[2])
		if metrics[name] != nil {
			continue
		}
		if !strings.HasSuffix(name, "_total") {
			t.Fatalf("%s has no sample, and so no type", name)
		}
		metrics[name] = &Metric{Name: name, Type: "counter", Help: help, Labels: map[string][]string{}}
		for label := range strings.SplitSeq(parts[4], ",") {
			metrics[name].Labels[label] = nil
		}
	}
	return metrics
}

func unquoted(t *testing.T, text string) string {
	t.Helper()
	var plain string
	if _, err := fmt.Sscanf(text, "%q", &plain); err != nil {
		t.Fatalf("unquote %s: %v", text, err)
	}
	return plain
}

func sampled(family *dto.MetricFamily) *Metric {
	m := &Metric{Name: family.GetName(), Type: strings.ToLower(family.GetType().String()), Help: family.GetHelp(), Labels: map[string][]string{}}
	for _, sample := range family.GetMetric() {
		for _, pair := range sample.GetLabel() {
			if values := m.Labels[pair.GetName()]; !slices.Contains(values, pair.GetValue()) {
				m.Labels[pair.GetName()] = append(values, pair.GetValue())
			}
		}
	}
	return m
}

// Metrics is a table of metrics, with an anchor for each.
func Metrics(metrics map[string]*Metric) string {
	var table strings.Builder
	table.WriteString("| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		m := metrics[name]
		var labels []string
		for _, label := range slices.Sorted(maps.Keys(m.Labels)) {
			cell := "`" + label + "`"
			if values := slices.Sorted(slices.Values(m.Labels[label])); len(values) > 1 && len(values) <= mostValues {
				cell += ": " + "`" + strings.Join(values, "`, `") + "`"
			}
			labels = append(labels, cell)
		}
		fmt.Fprintf(&table, "| <a id=\"%[1]s\"></a>`%[1]s` | %s | %s | %s |\n", name, m.Type, strings.Join(labels, "<br>"), Cell(m.Help))
	}
	return table.String()
}

// Cell makes text fit into a cell of a table.
func Cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}

package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

const (
	rowHeight  = 24
	labelWidth = 260
	barWidth   = 380
	plotWidth  = labelWidth + barWidth + 90
	top        = 40
)

var colors = map[Kind]string{Bound: "#9aa5b1", Ours: "#2563eb", Control: "#b08968", Peer: "#c2410c"}

// plot draws a workload's first metric: a bar to the median of each system, and a line
// from its least round to its most. The scale is logarithmic when the systems are far
// apart.
func plot(r *Run, w Workload) string {
	type row struct {
		System
		least, median, most float64
	}
	var rows []row
	metric := w.Metrics[0]
	low, high := math.Inf(1), 0.0
	for _, s := range r.Systems {
		found := r.summary(w.Name, s.Name, metric.Key)
		if found.N == 0 || found.Min <= 0 {
			continue
		}
		rows = append(rows, row{s, found.Min, found.Median, found.Max})
		low, high = min(low, found.Min), max(high, found.Max)
	}
	position := func(v float64) float64 { return barWidth * v / high }
	scale := ""
	const farApart = 20
	if high/low > farApart {
		scale = ", logarithmic"
		from := math.Floor(math.Log10(low))
		position = func(v float64) float64 { return barWidth * (math.Log10(v) - from) / (math.Log10(high) - from) }
	}
	height := top + rowHeight*len(rows) + 10
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<text x="8" y="20" font-size="14" font-weight="bold">%s: %s%s</text>`+"\n", html.EscapeString(w.Title), html.EscapeString(metric.Title), scale)
	for i, row := range rows {
		y := top + rowHeight*i
		middle := y + rowHeight/2
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", labelWidth-8, middle+4, html.EscapeString(row.Title))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", labelWidth, y+4, position(row.median), rowHeight-8, colors[row.Kind])
		fmt.Fprintf(&b, `<path d="M%.1f %dH%.1f" stroke="#111827" stroke-width="2"/>`+"\n", labelWidth+position(row.least), middle, labelWidth+position(row.most))
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", labelWidth+position(row.most)+6, middle+4, number(row.median))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

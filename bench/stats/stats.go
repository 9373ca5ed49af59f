// Package stats sums up rounds of measurements. Rounds are few and their noise is not
// normal, so everything here is about medians.
package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Summary is what several rounds of one cell say together.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Summarize sums values up. Of no values it is all zero.
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	return Summary{N: len(values), Median: Median(values), Min: slices.Min(values), Max: slices.Max(values)}
}

// Median is the value in the middle, or between the two in the middle.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile interpolates between the values next to the share q of them. Of no values
// it is not a number.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return quantile(sorted, q)
}

// quantile is Quantile of values that are sorted.
func quantile(sorted []float64, q float64) float64 {
	position := q * float64(len(sorted)-1)
	below := int(position)
	if below+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[below] + (position-float64(below))*(sorted[below+1]-sorted[below])
}

// Ratio is what one system's rounds are to another's.
type Ratio struct {
	N      int     `json:"n"` // rounds that both have
	Median float64 `json:"median"`
	Low    float64 `json:"low"` // the bounds of 95 % confidence
	High   float64 `json:"high"`
}

// resamples is enough for the bounds to stand still in their second digit.
const resamples = 4000

// Paired divides values by those of the same round, because what else the machine does
// changes from round to round and hits neighbors in time alike. The bounds are those
// of a bootstrap of the median over rounds. The same seed gives the same bounds.
func Paired(values, base map[int]float64, seed uint64) Ratio {
	var ratios []float64
	for round, value := range values {
		if divisor, ok := base[round]; ok && divisor != 0 {
			ratios = append(ratios, value/divisor)
		}
	}
	if len(ratios) == 0 {
		return Ratio{}
	}
	slices.Sort(ratios) // maps have no order, and the seed is to mean something
	random := rand.New(rand.NewPCG(seed, uint64(len(ratios))))
	medians := make([]float64, resamples)
	drawn := make([]float64, len(ratios))
	for i := range medians {
		for j := range drawn {
			drawn[j] = ratios[random.IntN(len(ratios))]
		}
		slices.Sort(drawn)
		medians[i] = quantile(drawn, 0.5)
	}
	return Ratio{N: len(ratios), Median: Median(ratios), Low: Quantile(medians, 0.025), High: Quantile(medians, 0.975)}
}

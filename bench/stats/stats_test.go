package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSummarize(t *testing.T) {
	for name, test := range map[string]struct {
		values []float64
		want   Summary
	}{
		"nothing": {nil, Summary{}},
		"one":     {[]float64{3}, Summary{1, 3, 3, 3}},
		"odd":     {[]float64{9, 1, 2}, Summary{3, 2, 1, 9}},
		"even":    {[]float64{4, 1, 2, 9}, Summary{4, 3, 1, 9}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Summarize(test.values)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{50, 10, 20, 40, 30}
	for q, want := range map[float64]float64{0: 10, 0.25: 20, 0.5: 30, 0.875: 45, 1: 50} {
		if got := Quantile(values, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := Quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("of nothing it is %v", got)
	}
	if diff := cmp.Diff([]float64{50, 10, 20, 40, 30}, values); diff != "" {
		t.Errorf("the values were moved: %s", diff)
	}
}

// What the machine does in one round it does to both, so it is not in the ratio.
func TestPairedIsPaired(t *testing.T) {
	values, base := map[int]float64{}, map[int]float64{}
	for round, disturbance := range []float64{1, 1.4, 0.7, 1.1, 2, 1, 0.9} {
		values[round], base[round] = 90*disturbance, 100*disturbance
	}
	base[100] = 1 // the other set has no such round
	got := Paired(values, base, 1)
	if got.N != 7 || math.Abs(got.Median-0.9) > 1e-9 || math.Abs(got.Low-0.9) > 1e-9 || math.Abs(got.High-0.9) > 1e-9 {
		t.Errorf("the ratio is %+v, want exactly 0.9", got)
	}
}

func TestPairedBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	missed := 0
	const trials = 40
	for trial := range trials {
		values, base := map[int]float64{}, map[int]float64{}
		for round := range 12 {
			values[round], base[round] = 80*(1+0.1*random.NormFloat64()), 100
		}
		got := Paired(values, base, uint64(trial))
		if got.Low > got.Median || got.Median > got.High {
			t.Fatalf("%+v is out of order", got)
		}
		if got.Low > 0.8 || got.High < 0.8 {
			missed++
		}
	}
	if missed > trials/8 {
		t.Errorf("%d of %d bounds of 95 %% miss the truth", missed, trials)
	}
}

func TestPairedRepeats(t *testing.T) {
	values, base := map[int]float64{0: 1, 1: 2, 2: 4, 3: 3}, map[int]float64{0: 1, 1: 1, 2: 1, 3: 1}
	if diff := cmp.Diff(Paired(values, base, 7), Paired(values, base, 7)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Ratio{}, Paired(values, nil, 7)); diff != "" {
		t.Error(diff)
	}
}

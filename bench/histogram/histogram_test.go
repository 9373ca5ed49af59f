package histogram

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	previous := -1
	for value := range uint64(1 << 16) {
		got := bucket(value)
		if got != previous && got != previous+1 {
			t.Fatalf("%d is in bucket %d, after %d", value, got, previous)
		}
		if high := uint64(highest(got)); high < value || high-value > value/steps {
			t.Fatalf("%d is in the bucket up to %d", value, high)
		}
		previous = got
	}
	if got := bucket(1<<63 - 1); got >= buckets {
		t.Errorf("the longest duration is in bucket %d of %d", got, buckets)
	}
}

func TestQuantiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var whole Histogram
	parts := [3]Histogram{}
	var exact []time.Duration
	for i := range 10_000 {
		d := time.Duration(random.ExpFloat64() * float64(80*time.Microsecond))
		exact = append(exact, d)
		parts[i%3].Record(d)
	}
	for i := range parts {
		whole.Merge(&parts[i])
	}
	slices.Sort(exact)
	if whole.Count() != 10_000 || whole.Max() != exact[9_999] {
		t.Errorf("there are %d up to %s, want 10000 up to %s", whole.Count(), whole.Max(), exact[9_999])
	}
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := exact[int(q*10_000)-1]
		if got := whole.Quantile(q); got < want || got > want+want/steps+1 {
			t.Errorf("quantile %v is %s, want %s", q, got, want)
		}
	}
}

func TestNothing(t *testing.T) {
	var h Histogram
	if h.Count() != 0 || h.Quantile(0.5) != 0 || h.Max() != 0 {
		t.Error("the zero value is not empty")
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	var h Histogram
	if got := testing.AllocsPerRun(100, func() { h.Record(time.Millisecond) }); got != 0 {
		t.Errorf("Record allocates %v times", got)
	}
}

// Package histogram counts latencies in a fixed space, so that a generator that records
// a million of them allocates nothing meanwhile.
package histogram

import (
	"math/bits"
	"time"
)

const (
	// Each power of two has so many buckets: values are known to 1/64.
	precision = 6
	steps     = 1 << precision
	buckets   = (64 - precision) * steps
)

// Histogram counts durations of zero and more. The zero value is empty.
type Histogram struct {
	counts [buckets]uint32
	total  uint64
	max    time.Duration
}

// Record counts one duration.
func (h *Histogram) Record(d time.Duration) {
	h.counts[bucket(uint64(max(d, 0)))]++
	h.total++
	h.max = max(h.max, d)
}

// Merge adds what another one has counted.
func (h *Histogram) Merge(other *Histogram) {
	for i, count := range other.counts {
		h.counts[i] += count
	}
	h.total += other.total
	h.max = max(h.max, other.max)
}

// Count is how many durations there are.
func (h *Histogram) Count() uint64 { return h.total }

// Max is the longest duration, exactly.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile is a duration that the share q of all do not exceed, known to 1/64. Of
// nothing it is zero.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	wanted := max(uint64(q*float64(h.total)+0.5), 1)
	var seen uint64
	for i, count := range h.counts {
		if seen += uint64(count); seen >= wanted {
			return min(highest(i), h.max)
		}
	}
	return h.max
}

// bucket is where a value is counted. Values below twice steps have one of their own.
func bucket(value uint64) int {
	shift := max(bits.Len64(value)-precision-1, 0)
	return shift*steps + int(value>>shift)
}

// highest is the largest value of a bucket.
func highest(bucket int) time.Duration {
	shift := max(bucket/steps-1, 0)
	return time.Duration((bucket-shift*steps+1)<<shift - 1)
}

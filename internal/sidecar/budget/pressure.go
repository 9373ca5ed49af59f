package budget

import "time"

// A client that reads nothing for SlowAfter, while other holders need the room, is slow. It is not
// slow while at most SlowBytes wait for it.
const (
	SlowAfter = 5 * time.Second
	SlowBytes = 64 << 10
)

// Pressure tells a client that does not read from one that reads slowly. Its owner calls Slow
// whenever another holder needs room, so it reads no clock while there is enough.
type Pressure struct {
	since time.Time
	taken uint64
}

// Slow reports whether a client is slow for which so many bytes wait. taken counts, in any unit,
// how much the client has read so far.
func (p *Pressure) Slow(waiting int, taken uint64) bool {
	now := time.Now()
	if p.taken != taken || waiting <= SlowBytes || now.Sub(p.since) > 2*SlowAfter {
		*p = Pressure{now, taken}
	}
	return now.Sub(p.since) >= SlowAfter
}

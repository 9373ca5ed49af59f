package budget

import "time"

// A client that takes nothing for SlowAfter, while others need the room, is slow. SlowBytes may
// wait for it all the same.
const (
	SlowAfter = 5 * time.Second
	SlowBytes = 64 << 10
)

// Pressure tells a client that does not read from one that reads slowly. Its owner asks it
// whenever another holder needs room, so it reads no clock while there is enough.
type Pressure struct {
	since time.Time
	taken uint64
}

// Slow says whether a client that so many bytes wait for is slow. taken counts what the client
// has taken so far, in any unit.
func (p *Pressure) Slow(waiting int, taken uint64) bool {
	now := time.Now()
	if p.taken != taken || waiting <= SlowBytes || now.Sub(p.since) > 2*SlowAfter {
		*p = Pressure{now, taken}
	}
	return now.Sub(p.since) >= SlowAfter
}

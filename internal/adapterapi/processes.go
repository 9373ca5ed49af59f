package adapterapi

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ProcessWindow is the time that Processes are about: it ends now.
const ProcessWindow = 5 * time.Minute

// MaxCause bounds Processes.Cause, in bytes.
const MaxCause = 100

// Processes says what became of an instance's server processes in the last ProcessWindow, as
// HeaderProcesses carries it. It counts every process: those of sessions, shared ones, spare ones
// and those that the adapter asks for the catalog.
type Processes struct {
	// Ended counts the processes that ended for any reason, and those that could not be started.
	Ended int64
	// Crashed counts those of Ended that ended although the adapter had not asked them to.
	Crashed int64
	// OutOfMemory counts those of Crashed that the kernel killed for memory.
	OutOfMemory int64
	// Unstartable counts those of Ended that could not be started.
	Unstartable int64
	// Cause is the most frequent cause among Crashed and Unstartable, in words of the adapter such
	// as "exit code 3", "signal 11" or "out of memory". It has at most MaxCause bytes of printable
	// ASCII, and nothing that the server wrote.
	Cause string
}

// Failed counts the processes that crashed or could not be started.
func (p Processes) Failed() int64 { return p.Crashed + p.Unstartable }

func (p Processes) String() string {
	return fmt.Sprintf("%d/%d/%d/%d/%s", p.Ended, p.Crashed, p.OutOfMemory, p.Unstartable, p.Cause)
}

// ParseProcesses reads what String returns. Counts have at most 40 bits, so that the manager can
// add those of all pods. A part of a count is never larger than the count.
func ParseProcesses(text string) (Processes, error) {
	const counts = 4
	parts := strings.SplitN(text, "/", counts+1)
	if len(parts) != counts+1 {
		return Processes{}, fmt.Errorf("read processes: want %d counts and a cause", counts)
	}
	var numbers [counts]int64
	for i := range numbers {
		number, err := strconv.ParseUint(parts[i], 10, 40)
		if err != nil {
			return Processes{}, fmt.Errorf("read processes: %w", err)
		}
		numbers[i] = int64(number)
	}
	p := Processes{numbers[0], numbers[1], numbers[2], numbers[3], parts[counts]}
	switch {
	case p.Failed() > p.Ended || p.OutOfMemory > p.Crashed:
		return Processes{}, errors.New("read processes: a part is larger than the whole")
	case len(p.Cause) > MaxCause || strings.ContainsFunc(p.Cause, func(r rune) bool { return r < ' ' || r > '~' }):
		return Processes{}, fmt.Errorf("read processes: the cause is not at most %d bytes of printable ASCII", MaxCause)
	}
	return p, nil
}

package adapterapi

import (
	"fmt"
	"strconv"
	"strings"
)

// Sessions are those of an instance, as HeaderSessions carries them.
type Sessions struct {
	Open    int64
	Limit   int64  // how many may be open at a time
	Refused uint64 // clients that found every slot taken, since the adapter started
	Spares  int64  // processes that wait for a session; 0 from an adapter that does not say
}

func (s Sessions) String() string { return fmt.Sprintf("%d/%d/%d", s.Open, s.Limit, s.Refused) }

// WithSpares is String for a manager that asks for the spares.
func (s Sessions) WithSpares() string { return fmt.Sprintf("%s/%d", s, s.Spares) }

// ParseSessions reads what String and WithSpares return. Counts have at most 40 bits, so that those of all
// pods can be added.
func ParseSessions(text string) (Sessions, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 && len(parts) != 4 {
		return Sessions{}, fmt.Errorf("read sessions: %q has neither three parts nor four", text)
	}
	var numbers [4]uint64
	for i, part := range parts {
		number, err := strconv.ParseUint(part, 10, 40)
		if err != nil {
			return Sessions{}, fmt.Errorf("read sessions: %w", err)
		}
		numbers[i] = number
	}
	return Sessions{int64(numbers[0]), int64(numbers[1]), numbers[2], int64(numbers[3])}, nil //nolint:gosec // of 40 bits
}

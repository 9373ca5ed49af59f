package swarm

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is what went wrong.
type Kind string

// The kinds.
const (
	// Wrong is an answer that no client may ever get.
	Wrong Kind = "wrong"
	// Over is a 404: the session has ended.
	Over Kind = "over"
	// Refused is a 503. The server has not executed the request.
	Refused Kind = "refused"
	// Broken is a request without a whole answer, or with an error instead of a result. Whether the server has executed it
	// is not known.
	Broken Kind = "broken"
	// Unasked is a request that did not get as far as the server, for a reason that has nothing to do with it.
	Unasked Kind = "unasked"
)

// Incident is one thing that went wrong.
type Incident struct {
	At     time.Time
	Took   time.Duration
	Kind   Kind
	Client int
	Owner  string // the host of the session's process; empty without a session
	Text   string
}

func (i Incident) String() string {
	return fmt.Sprintf("%s %s, client %d, session at %q, after %s: %s", i.At.Format("15:04:05.000"), i.Kind, i.Client, i.Owner, i.Took.Round(time.Millisecond), i.Text)
}

// Report is what a swarm has done and seen so far.
type Report struct {
	Sessions, Calls, Streams, Resumed, Cancelled, Questions int
	Incidents                                               []Incident
}

// Of returns the incidents of some kinds.
func (r *Report) Of(kinds ...Kind) []Incident {
	return slices.DeleteFunc(slices.Clone(r.Incidents), func(i Incident) bool { return !slices.Contains(kinds, i.Kind) })
}

func (r *Report) String() string {
	counts := map[Kind]int{}
	for _, incident := range r.Incidents {
		counts[incident.Kind]++
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d sessions, %d calls, %d streams (%d resumed), %d cancelled, %d questions", r.Sessions, r.Calls, r.Streams, r.Resumed, r.Cancelled, r.Questions)
	for _, kind := range []Kind{Wrong, Over, Refused, Broken, Unasked} {
		fmt.Fprintf(&text, ", %d %s", counts[kind], kind)
	}
	return text.String()
}

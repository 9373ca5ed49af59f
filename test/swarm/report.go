package swarm

import (
	"fmt"
	"maps"
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
	// Abandoned is a session that an SDK has given up although the server has neither ended it nor refused anything. The
	// server may have executed the call.
	Abandoned Kind = "abandoned"
	// Unasked is a request that did not get as far as the server, for a reason that has nothing to do with it.
	Unasked Kind = "unasked"
)

var kinds = []Kind{Wrong, Over, Refused, Broken, Abandoned, Unasked}

// Incident is one thing that went wrong.
type Incident struct {
	At     time.Time
	Took   time.Duration
	Kind   Kind
	Client int
	Make   Make
	Owner  string // the host of the session's process; empty without a session
	Text   string
}

func (i Incident) String() string {
	return fmt.Sprintf("%s %s, client %d (%s), session at %q, after %s: %s", i.At.Format("15:04:05.000"), i.Kind, i.Client, i.Make, i.Owner, i.Took.Round(time.Millisecond), i.Text)
}

// Report is what a swarm has done and seen so far.
type Report struct {
	Sessions, Calls, Streams, Resumed, Cancelled, Questions int
	// By is how often each make has done something without an incident.
	By        map[Make]int
	Incidents []Incident
	// Quirks is what SDKs do by themselves, and how often they did.
	Quirks map[string]int
}

func (r *Report) clone() *Report {
	clone := *r
	clone.By, clone.Quirks, clone.Incidents = maps.Clone(r.By), maps.Clone(r.Quirks), slices.Clone(r.Incidents)
	return &clone
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
	for _, kind := range kinds {
		fmt.Fprintf(&text, ", %d %s", counts[kind], kind)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.By)) {
		fmt.Fprintf(&text, "; %s: %d operations", kind, r.By[kind])
	}
	for _, quirk := range slices.Sorted(maps.Keys(r.Quirks)) {
		fmt.Fprintf(&text, "; %d times %s", r.Quirks[quirk], quirk)
	}
	return text.String()
}

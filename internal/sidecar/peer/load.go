package peer

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// headerLoad is how full the pod is that answers a request to open a session. Its value is a dictionary of RFC 9651.
const headerLoad = "Slipway-Load"

// Load is how full a pod is.
type Load struct {
	Sessions int64 // and places that are taken for sessions that open now
	Limit    int64
	Spares   int64 // processes that wait for a session
}

// isFull reports whether the pod has said that it is full, or the list has.
func (l *Load) isFull() bool { return l.Sessions >= max(l.Limit, 1) }

// report is what a pod says in headerLoad.
type report struct {
	Load
	refused bool // it has not begun with the session
}

func (r *report) String() string {
	text := fmt.Sprintf("sessions=%d, limit=%d, spares=%d", r.Sessions, r.Limit, r.Spares)
	if r.refused {
		text += ", refused"
	}
	return text
}

// takeReport removes the report from the headers of an answer. It returns false if there is none.
func takeReport(header http.Header) (report, bool) {
	values := header[headerLoad]
	delete(header, headerLoad)
	if len(values) != 1 {
		return report{}, false
	}
	var made report
	for member := range strings.SplitSeq(values[0], ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(member), "=")
		number, err := strconv.ParseInt(value, 10, 64)
		switch {
		case name == "refused":
			made.refused = true
		case err != nil || number < 0: // of a newer adapter
		case name == "sessions":
			made.Sessions = number
		case name == "limit":
			made.Limit = number
		case name == "spares":
			made.Spares = number
		}
	}
	return made, made.Limit > 0
}

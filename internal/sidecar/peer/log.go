package peer

import (
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

const (
	// logPause is how long the log has no second line of the same kind about a pod.
	logPause = 10 * time.Second
	// logPods bounds the lines that are remembered for that. Beyond it the log has none.
	logPods = 64
)

// What the log says of a pod.
const (
	saysSilent   = "A pod with sessions does not answer"
	saysStuck    = "A pod with sessions can be reached, but takes no connection"
	saysDead     = "A pod counts as dead; its sessions are over"
	saysReplaced = "Another pod has the address of a pod; its sessions are over"
)

// verdicts logs what becomes of other pods. Each request to a pod brings a verdict, so most are only counted.
type verdicts struct {
	log logr.Logger

	mu    sync.Mutex
	lines map[line]logged
}

type line struct {
	text string
	pod  [16]byte
}

type logged struct {
	at   time.Time
	more int // that the log has no line of
}

// say logs a text about a pod, unless the log has had it a short time ago.
func (v *verdicts) say(text string, about sessionid.Owner, silence time.Duration) {
	if more, ok := v.isNew(line{text, about.UID}, time.Now()); ok {
		v.log.Info(text, "address", about.Address.String(), "for", silence.Round(time.Millisecond).String(), "sinceLastLine", more)
	}
}

// isNew reports whether the log should have a line now, and how many of its kind it had none of.
func (v *verdicts) isNew(l line, now time.Time) (more int, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, has := v.lines[l]
	switch {
	case has && now.Sub(known.at) < logPause:
		v.lines[l] = logged{known.at, known.more + 1}
		return 0, false
	case !has && !v.makeRoomLocked(now):
		return 0, false
	}
	v.lines[l] = logged{at: now}
	return known.more, true
}

func (v *verdicts) makeRoomLocked(now time.Time) bool {
	if v.lines == nil {
		v.lines = map[line]logged{}
	}
	if len(v.lines) < logPods {
		return true
	}
	for l, known := range v.lines {
		if now.Sub(known.at) >= logPause {
			delete(v.lines, l)
		}
	}
	return len(v.lines) < logPods
}

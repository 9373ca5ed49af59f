package edge

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

const (
	// refusalPause is how long the log has no second line for the same reason.
	refusalPause = 10 * time.Second
	// refusalReasons bounds the reasons that the log tells apart, because some contain words
	// of the client.
	refusalReasons = 64
	// refusalText is how much of a reason the log has.
	refusalText = 256
)

// Refusals logs requests that the adapter itself refuses. It logs the first one of a
// reason at once, and then, every ten seconds, how many more there were. A nil Refusals
// logs nothing.
type Refusals struct {
	Log logr.Logger

	mu      sync.Mutex
	reasons map[string]*refusedSince
}

// refusedSince are the requests refused for one reason since the log had the last line of it.
type refusedSince struct {
	count int
	last  []any // of the last of them, for the log
	level int
	timer *time.Timer
}

// note logs a refusal, or counts it.
func (f *Refusals) note(r *Request, status int, text string) {
	if f == nil {
		return
	}
	about := []any{"status", status, "reason", rpc.Legible(text, refusalText), "method", r.Method, "from", addressOf(r.RemoteAddr)}
	level := 0
	if r.Caller.Probe { // the manager expects that an instance may refuse its probe
		level = 1
	}
	key := strconv.Itoa(level) + " " + strconv.Itoa(status) + " "
	if f.isFirst(key, invariable(text), about, level) {
		f.Log.V(level).Info("Request refused", about...)
	}
}

// isFirst reports whether the log has had no line of the reason for a while. If it has had
// one, isFirst counts the refusal.
func (f *Refusals) isFirst(status, reason string, about []any, level int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := status + reason
	known := f.reasons[key]
	if known == nil && len(f.reasons) >= refusalReasons {
		key = status
		known = f.reasons[key]
	}
	if known != nil {
		known.count++
		known.last = about
		return false
	}
	if f.reasons == nil {
		f.reasons = map[string]*refusedSince{}
	}
	f.reasons[key] = &refusedSince{level: level, timer: time.AfterFunc(refusalPause, func() { f.report(key) })}
	return true
}

// report logs how many requests the adapter has refused for a reason since its last line.
// It forgets a reason without any.
func (f *Refusals) report(key string) {
	f.mu.Lock()
	known := f.reasons[key]
	count, about := known.count, known.last
	if count == 0 {
		delete(f.reasons, key)
	} else {
		known.count, known.last = 0, nil
		known.timer.Reset(refusalPause)
	}
	f.mu.Unlock()
	if count > 0 {
		f.Log.V(known.level).Info("More requests refused", append([]any{"count", count}, about...)...)
	}
}

// invariable returns the beginning of a text, before any number and any word of a client.
// Texts of one reason have it in common.
func invariable(text string) string {
	if end := strings.IndexAny(text, `":/0123456789`); end >= 0 {
		return text[:end]
	}
	return text[:min(len(text), refusalText)]
}

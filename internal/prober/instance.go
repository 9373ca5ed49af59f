package prober

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

const (
	// Until a pod is ready, its adapter is asked why not, ever more slowly.
	firstAsk = 500 * time.Millisecond
	// After a failure the next attempt comes later and later.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// betweenVerifications is for pods that come and go.
	betweenVerifications = time.Second
	// How long to wait when too much is being read already.
	firstPostponed = time.Second
	lastPostponed  = 2 * time.Second
	toldPostponed  = 10 // times in a row

	// patience is how many times in a row something must fail that says little of
	// the server, before it counts.
	patience = 3

	// A catalog that changes more than flapChanges times in flapWindow flaps. Then
	// it is taken once in flapWindow only.
	flapChanges = 5
	flapWindow  = 5 * time.Minute
)

// instance is what is known of a pod, and when it is asked next. All of it belongs to
// the Prober's lock.
type instance struct {
	Instance
	server *server
	result Result

	needsVerify bool      // it has yet to be asked through its client port
	held        bool      // its adapter said that it is not ready: no use to verify
	verifyFails int       // in a row
	softFails   int       // those among them that do not undo a success
	askFails    int       // of the catalog, in a row
	asks        int       // while it was not ready
	askNext     bool      // the catalog was left out last time, and comes before anything else
	noRoom      int       // times in a row that there was no memory to read the catalog
	verifiedAt  time.Time // when it was last asked through its client port
	verifyAt    time.Time // not before this it is asked there again

	pushes   [documentKinds]pushing
	listedAt time.Time // when it was last sent a list of pods
	pushed   bool      // since its adapter was last asked

	etag      string
	unchanged int // times in a row that a whole answer said nothing new
	flap      flap

	at      time.Time // when it is asked next
	index   int       // in the queue, or -1
	state   state
	running *job
	suspect bool // it did not answer in time
}

// state is where an instance is.
type state uint8

const (
	queued  state = iota // waits for its time
	parked               // waits for others
	running              // is being asked
	gone
)

// trigger makes the prober verify the instance again, after a change that makes its last results outdated.
func (i *instance) trigger(now time.Time) {
	i.needsVerify, i.held = true, false
	i.verifyAt = later(now, i.verifiedAt.Add(betweenVerifications))
	i.verifyFails, i.softFails, i.askFails, i.asks = 0, 0, 0, 0
	i.askNext, i.noRoom, i.suspect = false, 0, false
	for kind := range i.pushes {
		i.pushes[kind].fails, i.pushes[kind].at = 0, now
	}
}

// wantsVerify says whether it is to be asked through its client port. While its
// adapter says that it is not ready there is no use in that, unless the adapter does
// not say so any more.
func (i *instance) wantsVerify() bool {
	return i.Ready && i.needsVerify && (!i.held || i.askFails > 0)
}

// verifyNow says whether that is the next question.
func (i *instance) verifyNow(now time.Time) bool {
	return i.wantsVerify() && !i.askNext && !now.Before(i.verifyAt)
}

// next is when to ask.
func (i *instance) next(now time.Time) time.Time {
	next := i.nextAsk(now)
	for _, kind := range i.lagging() {
		next = earlier(next, later(now, i.pushes[kind].at))
	}
	return next
}

func (i *instance) nextAsk(now time.Time) time.Time {
	switch {
	case i.noRoom > 0:
		return now.Add(jitter(backOff(firstPostponed, i.noRoom, lastPostponed)))
	case i.askNext:
		return now
	case i.wantsVerify():
		return earlier(i.verifyAt, i.askAt(now))
	default:
		return i.askAt(now)
	}
}

// askAt is when to ask for the catalog.
func (i *instance) askAt(now time.Time) time.Time {
	switch {
	case i.askFails > 0 && i.Ready && !i.held:
		return now.Add(jitter(backOff(firstRetry, i.askFails, max(lastRetry, i.Interval))))
	case !i.Ready || i.held:
		return now.Add(jitter(i.renewing(min(firstAsk<<min(i.asks, 20), i.Interval))))
	default:
		return now.Add(jitter(i.calmInterval()))
	}
}

// calmInterval is the time between two requests to an instance that works. Answers without news make it longer.
func (i *instance) calmInterval() time.Duration {
	return i.renewing(max(i.Interval, min(i.Interval<<min(i.unchanged, 10), lastRetry)))
}

// renewing shortens the time between two questions to an adapter with a list, so that the list counts on.
func (i *instance) renewing(interval time.Duration) time.Duration {
	if i.Peers.Digest != "" {
		return min(interval, renewal)
	}
	return interval
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// backOff is first after one failure, twice that after two, and so on.
func backOff(first time.Duration, failures int, last time.Duration) time.Duration {
	if failures == 0 {
		return 0
	}
	return min(first<<min(failures-1, 20), last)
}

// jitter keeps those who started together from staying together.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64())) //nolint:gosec // it need not be secret
}

// verified records the result of a verification.
func (i *instance) verified(err error, now time.Time) {
	if err == nil {
		i.needsVerify, i.verifyFails, i.softFails = false, 0, 0
		i.conclude(Verified, "")
		return
	}
	i.verifyFails++
	outcome, words := outcomeOf(err, i.Instance)
	wait := backOff(firstRetry, i.verifyFails, lastRetry)
	if e, ok := errors.AsType[*mcpprobe.Error](err); ok {
		wait = max(wait, min(e.RetryAfter, lastRetry))
	}
	i.verifyAt = now.Add(jitter(wait))
	if outcome == Failed {
		i.softFails = 0
		i.conclude(outcome, words)
		return
	}
	i.softFails++
	if i.result.Outcome != Verified || i.softFails >= patience {
		i.conclude(outcome, words)
	}
}

func (i *instance) conclude(outcome Outcome, words string) {
	i.result.Outcome, i.result.Message = outcome, words
}

// answered records the adapter's answer.
func (i *instance) answered(answer reply, now time.Time) {
	i.askFails, i.askNext, i.noRoom = 0, false, 0
	i.asks++
	if i.result.Outcome == Verified || i.result.Outcome == Pending {
		i.result.Message = "" // the catalog can be read
	}
	if answer.sessions != nil {
		i.result.Sessions = *answer.sessions
	}
	i.result.Processes, i.result.Keys, i.result.Silent = answer.processes, answer.keys, false
	before := i.result
	switch {
	case !answer.unchanged:
		i.etag = answer.etag
		i.takeState(settingsDocument, asAccess(answer.settings))
		i.takeState(accessDocument, answer.access)
		i.takeState(peersDocument, answer.peers)
		i.reported(answer.report, now)
		if answer.catalog != nil {
			i.offered(answer, now)
		}
		switch {
		case before.Report != i.result.Report || before.Catalog != i.result.Catalog || differ(before, i.result):
			i.unchanged = 0
		case !i.pushed: // that alone makes another answer
			i.unchanged++
		}
	case i.result.Report != nil:
		i.reported(*i.result.Report, now)
	}
	i.pushed = false
	i.result.Flapping = i.flap.flapping(now)
}

// reported records what the adapter reports about its server.
func (i *instance) reported(report Report, now time.Time) {
	if i.result.Report == nil || *i.result.Report != report {
		i.result.Report = &report
	}
	if i.Terminating {
		return // what it says of its server while it ends is no verdict
	}
	if report.Ready {
		if i.held {
			i.held, i.asks = false, 0
			i.verifyFails, i.softFails, i.verifyAt = 0, 0, now
			if !i.Ready {
				i.conclude(Pending, "") // what was wrong is over
			}
		}
		return
	}
	i.held, i.needsVerify = true, true
	words := cmp.Or(report.Error, "the adapter says that the server is not ready")
	switch adapterapi.Reason(report.Reason) {
	case adapterapi.Starting:
		i.conclude(Pending, words)
	case adapterapi.NoRoom, adapterapi.Busy:
		i.conclude(Full, words)
	default:
		i.conclude(Failed, words)
	}
}

// unanswered records that the catalog could not be read. Only the client port shows whether
// the server works, so the prober then verifies again.
func (i *instance) unanswered(err error, now time.Time) {
	i.askFails++
	i.asks++
	i.askNext, i.noRoom, i.result.Silent = false, 0, true
	if i.askFails == patience && i.Ready && !i.needsVerify {
		i.needsVerify, i.verifyAt = true, now
	}
	told := i.Ready && i.askFails >= patience || isUnsigned(err) && (i.result.Report == nil || i.askFails >= patience)
	if told && (i.result.Outcome == Verified || i.result.Outcome == Pending) {
		i.result.Message = trouble(err, i.Instance)
	}
}

// postponed records that there was no memory to read the catalog. The prober reports that
// only if it lasts.
func (i *instance) postponed() {
	i.askNext = false
	i.noRoom++
	if i.noRoom >= toldPostponed && (i.result.Outcome == Verified || i.result.Outcome == Pending) {
		i.result.Message = trouble(errNoRoom, i.Instance)
	}
}

// offered records what the server offers, unless that changes too often.
func (i *instance) offered(answer reply, now time.Time) {
	catalog := answer.catalog
	if answer.skimmed {
		i.flap.see(catalog.Summary.Catalog.Digest, now)
		i.flap.skipped = true
		return
	}
	if !i.flap.take(catalog.Summary.Catalog.Digest, now) {
		return
	}
	if catalog.Stored != nil && catalog.Summary.Catalog.Digest == i.Stored {
		catalog = &Catalog{Summary: catalog.Summary} // it was stored meanwhile
	}
	i.result.Catalog = i.server.intern(catalog)
}

// flap is how often a catalog has changed recently.
type flap struct {
	seen    string      // the digest that came last
	changes []time.Time // of the last flapWindow, and no more than needed
	taken   time.Time   // when a catalog was last taken
	skipped bool        // the last one was not
}

// take says whether to take a catalog of that digest.
func (f *flap) take(digest string, now time.Time) bool {
	changed := f.see(digest, now)
	if (changed || f.skipped) && f.flapping(now) && now.Sub(f.taken) < flapWindow {
		f.skipped = true
		return false
	}
	if changed || f.skipped {
		f.taken = now
	}
	f.skipped = false
	return true
}

// see says whether the digest is another than the last.
func (f *flap) see(digest string, now time.Time) bool {
	changed := digest != f.seen
	if changed && f.seen != "" {
		f.changes = append(f.changes, now)
	}
	f.seen = digest
	return changed
}

func (f *flap) flapping(now time.Time) bool {
	for len(f.changes) > 0 && (now.Sub(f.changes[0]) >= flapWindow || len(f.changes) > flapChanges+1) {
		f.changes = f.changes[1:]
	}
	return len(f.changes) > flapChanges
}

// due says whether a catalog that was skipped is to be taken after all.
func (f *flap) due(now time.Time) bool {
	return f.skipped && (!f.flapping(now) || now.Sub(f.taken) >= flapWindow)
}

// question is what to ask the adapter. Without a tag it answers with the whole.
func (i *instance) question(now time.Time) question {
	catalog := i.result.Catalog
	missing := catalog != nil && catalog.Stored == nil && catalog.Summary.Catalog.Digest != "" && catalog.Summary.Catalog.Digest != i.Stored
	switch {
	case i.flap.due(now):
		return question{}
	case i.flap.flapping(now) && now.Sub(i.flap.taken) < flapWindow:
		return question{tag: i.etag, skim: true}
	case missing:
		return question{}
	default:
		return question{tag: i.etag}
	}
}

package controller

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-mcp/slipway/internal/registry"
)

// ImageResolver reads what an image says of itself from its registry, with the
// credentials that pods of the server would have.
type ImageResolver interface {
	Resolve(ctx context.Context, request ImageRequest) (registry.Image, error)
}

// ImageRequest is an image to resolve.
type ImageRequest struct {
	Namespace      string
	Image          string
	PullSecrets    []string
	ServiceAccount string
}

const (
	// lookupsPerRegistry is how many questions one registry is asked at a time. Each
	// has places of its own: one that does not answer holds up its own images only.
	lookupsPerRegistry = 4
	lookupTimeout      = 20 * time.Second

	firstLookupPause = 5 * time.Second
	lastLookupPause  = 5 * time.Minute
)

// imageLookups asks registries in the background, so that a registry that does not answer
// delays no reconcile. Each server has one lookup at a time: its latest.
type imageLookups struct {
	resolver ImageResolver
	notify   func(types.NamespacedName)

	mu         sync.Mutex
	ctx        context.Context // of the manager; nil before it runs
	registries map[string]*places
	silent     map[string]silence // registries that did not answer
	lookups    map[types.NamespacedName]*imageLookup
}

// places limits the lookups at one registry. It exists while a lookup uses it.
type places struct {
	users int
	taken chan struct{}
}

// imageLookup is one question, with its answer once it is there.
type imageLookup struct {
	spec   string    // the hash of the spec that asked
	name   string    // of the image
	since  time.Time // when the spec first asked
	done   bool
	image  *registry.Image
	err    *registry.Error
	fails  int
	next   time.Time       // when a failed one may be tried again
	before *registry.Image // the answer to an earlier spec with the same image
}

// start makes lookups run until the context ends.
func (l *imageLookups) start(ctx context.Context, notify func(types.NamespacedName)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx, l.notify = ctx, notify
}

// lookup returns the answer for a server whose spec has this hash. It starts a lookup if
// there is none. It never waits.
func (l *imageLookups) lookup(server types.NamespacedName, spec string, request ImageRequest, now time.Time) imageLookup {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.lookups[server]
	switch {
	case known == nil || known.spec != spec:
		known = &imageLookup{spec: spec, name: request.Image, since: now, before: known.answerFor(request.Image)}
		if l.lookups == nil {
			l.lookups = map[types.NamespacedName]*imageLookup{}
		}
		l.lookups[server] = known
		l.ask(server, known, request)
	case known.done && known.err != nil && !now.Before(known.next):
		known.done = false
		l.ask(server, known, request)
	}
	return *known
}

// answerFor is the last answer for an image, or nil.
func (l *imageLookup) answerFor(name string) *registry.Image {
	switch {
	case l == nil || l.name != name:
		return nil
	case l.image != nil:
		return l.image
	default:
		return l.before
	}
}

// ask asks in the background. l.mu is held.
func (l *imageLookups) ask(server types.NamespacedName, question *imageLookup, request ImageRequest) {
	ctx, host := l.ctx, registry.Host(request.Image)
	place := l.enterLocked(host)
	go func() {
		defer l.leave(host)
		select {
		case place <- struct{}{}:
			defer func() { <-place }()
		case <-ctx.Done():
			return
		}
		if problem := l.silence(host, time.Now()); problem != nil {
			l.answer(question, registry.Image{}, problem, time.Now())
			l.notify(server)
			return
		}
		limited, cancel := context.WithTimeout(ctx, lookupTimeout)
		defer cancel()
		image, err := l.resolver.Resolve(limited, request)
		l.note(host, err, time.Now())
		l.answer(question, image, err, time.Now())
		l.notify(server)
	}()
}

// silencePause is how long a registry is not asked again that did not answer at all. A
// firewall that drops packets costs a lookup its whole time, and there may be hundreds.
const silencePause = time.Minute

// silence is that of a registry that could not be reached.
type silence struct {
	until   time.Time
	problem *registry.Error
}

// silence is why a registry is not asked now, or nil.
func (l *imageLookups) silence(host string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if silent, ok := l.silent[host]; ok && now.Before(silent.until) {
		return silent.problem
	}
	return nil
}

// note notes whether a registry answers.
func (l *imageLookups) note(host string, err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.silent, func(_ string, silent silence) bool { return !now.Before(silent.until) })
	problem, ok := errors.AsType[*registry.Error](err)
	if !ok || !problem.Silent {
		delete(l.silent, host)
		return
	}
	if l.silent == nil {
		l.silent = map[string]silence{}
	}
	l.silent[host] = silence{now.Add(silencePause), problem}
}

func (l *imageLookups) enterLocked(host string) chan struct{} {
	if l.registries == nil {
		l.registries = map[string]*places{}
	}
	if l.registries[host] == nil {
		l.registries[host] = &places{taken: make(chan struct{}, lookupsPerRegistry)}
	}
	l.registries[host].users++
	return l.registries[host].taken
}

func (l *imageLookups) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.registries[host].users--; l.registries[host].users == 0 {
		delete(l.registries, host)
	}
}

func (l *imageLookups) answer(question *imageLookup, image registry.Image, err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	question.done = true
	if err == nil {
		question.image, question.err, question.fails = &image, nil, 0
		return
	}
	problem, ok := errors.AsType[*registry.Error](err)
	if !ok {
		problem = &registry.Error{Kind: registry.Unavailable, Detail: err.Error()}
	}
	question.err = problem
	pause := min(firstLookupPause<<min(question.fails, 10), lastLookupPause)
	question.fails++
	question.next = now.Add(pause)
}

func (l *imageLookups) forget(server types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lookups, server)
}

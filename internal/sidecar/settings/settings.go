// Package settings holds what an adapter takes over while it runs. A document with it
// comes two ways: a ConfigMap that is mounted as a directory, so that an adapter has it
// from its start, and pushes of the manager, because the kubelet takes a minute or more
// to bring a mounted directory up to date.
package settings

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
)

// lookInterval is how often the directory is looked at. It matters only when no push
// arrives.
const lookInterval = 5 * time.Second

// ErrOlder is for a document that is older than the one in effect.
var ErrOlder = errors.New("the settings are older than those in effect")

// Values are what an adapter goes by. They are never changed, but replaced.
type Values struct {
	Generation int64  // of the document; 0 if there is none
	Digest     string // of the document
	Origins    origin.Policy
	Verbosity  int
}

// Options are where settings come from and who hears of them.
type Options struct {
	// Start is what holds without a document: that of the flags.
	Start Values
	// Dir is the directory that the document is mounted in; empty if there is none.
	Dir string
	// Changed is called with each new value, in their order, before Take returns; may be nil.
	Changed func(*Values)
	Log     logr.Logger
}

// Live is the settings as they are now.
type Live struct {
	options Options
	values  atomic.Pointer[Values]

	taking     sync.Mutex // one document is taken after the other
	seen       string     // digest of what the directory had when last looked at
	unreadable bool       // it had something then that could not be read
}

// New returns settings that are those of the start, until a document is taken.
func New(options Options) *Live {
	l := &Live{options: options}
	start := options.Start
	start.Generation, start.Digest = 0, ""
	l.values.Store(&start)
	return l
}

// Load is what holds now.
func (l *Live) Load() *Values { return l.values.Load() }

// Origins says which origins and hosts are allowed now.
func (l *Live) Origins() *origin.Policy { return &l.values.Load().Origins }

// State says which document is in effect.
func (l *Live) State() adapterapi.SettingsState {
	values := l.values.Load()
	return adapterapi.SettingsState{Version: adapterapi.SettingsVersion, Generation: values.Generation, Digest: values.Digest}
}

// Take makes a document hold, all of it at once. What cannot be read, or is older than
// what is in effect, changes nothing. Another document of the same generation is taken:
// what the manager adds to a spec can change, too.
func (l *Live) Take(document []byte) error {
	l.taking.Lock()
	defer l.taking.Unlock()
	return l.take(document, "pushed")
}

func (l *Live) take(document []byte, how string) error {
	settings, err := adapterapi.DecodeSettings(document)
	if err != nil {
		return err
	}
	next := &Values{
		Generation: settings.Generation, Digest: adapterapi.SettingsDigest(document),
		Origins:   origin.Policy{Origins: settings.AllowedOrigins, Hosts: settings.AllowedHosts},
		Verbosity: settings.Verbosity,
	}
	if err := next.Origins.Validate(); err != nil {
		return fmt.Errorf("use settings: %w", err)
	}
	now := l.values.Load()
	switch {
	case next.Generation < now.Generation:
		return fmt.Errorf("%w: generation %d after %d", ErrOlder, next.Generation, now.Generation)
	case next.Digest == now.Digest:
		return nil
	}
	l.values.Store(next)
	if l.options.Changed != nil {
		l.options.Changed(next)
	}
	log := l.options.Log
	if next.same(now) {
		log = log.V(1) // the generation counts changes of all of the spec
	}
	log.Info("Took settings", "generation", next.Generation, "how", how, "hosts", len(next.Origins.Hosts),
		"origins", len(next.Origins.Origins), "verbosity", next.Verbosity)
	return nil
}

// same says whether nothing but the document is another one.
func (v *Values) same(other *Values) bool {
	return v.Verbosity == other.Verbosity && slices.Equal(v.Origins.Hosts, other.Origins.Hosts) && slices.Equal(v.Origins.Origins, other.Origins.Origins)
}

// Run looks at the directory again and again, until the context ends.
func (l *Live) Run(ctx context.Context) {
	if l.options.Dir == "" {
		return
	}
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.Reload()
		}
	}
}

// Reload looks at the directory. What it has counts only when that is not what it had the
// last time: the kubelet is behind the manager, and what it has yet to replace must not
// undo a push. A document that is broken leaves in effect what is, and is told of once.
func (l *Live) Reload() {
	if l.options.Dir == "" {
		return
	}
	l.taking.Lock()
	defer l.taking.Unlock()
	document, err := os.ReadFile(filepath.Join(l.options.Dir, adapterapi.SettingsFile))
	switch {
	case errors.Is(err, fs.ErrNotExist): // nothing is mounted
		l.seen, l.unreadable = "", false
		return
	case err != nil:
		if !l.unreadable {
			l.keep(fmt.Errorf("read settings: %w", err))
		}
		l.seen, l.unreadable = "", true
		return
	}
	l.unreadable = false
	digest := adapterapi.SettingsDigest(document)
	if digest == l.seen {
		return
	}
	l.seen = digest
	if err := l.take(document, "mounted"); err != nil && !errors.Is(err, ErrOlder) {
		l.keep(err)
	}
}

func (l *Live) keep(err error) {
	l.options.Log.Error(err, "Keep the settings that are in effect", "directory", l.options.Dir, "generation", l.values.Load().Generation)
}

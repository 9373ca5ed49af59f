// Package settings holds the configuration that can change while an adapter runs. The manager writes
// it as a document, which reaches the adapter in two ways. A mounted ConfigMap has it from the start.
// The manager also pushes it, because the kubelet takes a minute or more to update a mount.
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

// readInterval is how often the adapter reads the mounted document. It matters only if no push
// arrives.
const readInterval = 5 * time.Second

// ErrOlder refuses a document that is older than the one in effect.
var ErrOlder = errors.New("the settings are older than those in effect")

// Values are the settings in effect. They are immutable.
type Values struct {
	Generation int64  // of the document; 0 if there is none
	Digest     string // of the document
	Origins    origin.Policy
	Verbosity  int
}

// Options configure Live settings.
type Options struct {
	// Start are the values of the flags, which are in effect until there is a document.
	Start Values
	// Dir is the directory with the mounted document; may be empty.
	Dir string
	// Changed is called with each new value, in order, before Take returns; may be nil.
	Changed func(*Values)
	Log     logr.Logger
}

// Live are settings that change while the adapter runs.
type Live struct {
	options Options
	values  atomic.Pointer[Values]

	taking     sync.Mutex // held while a document is taken
	seen       string     // digest of the mounted document when last read
	unreadable bool       // the last read failed
}

// New returns settings with the values of the start.
func New(options Options) *Live {
	l := &Live{options: options}
	start := options.Start
	start.Generation, start.Digest = 0, ""
	l.values.Store(&start)
	return l
}

// Load returns the values in effect.
func (l *Live) Load() *Values { return l.values.Load() }

// Origins returns the allowed origins and hosts.
func (l *Live) Origins() *origin.Policy { return &l.values.Load().Origins }

// State returns which document is in effect.
func (l *Live) State() adapterapi.SettingsState {
	values := l.values.Load()
	return adapterapi.SettingsState{Version: adapterapi.SettingsVersion, Generation: values.Generation, Digest: values.Digest}
}

// Take puts a whole document into effect. An invalid document, or one that is older than the one in
// effect, changes nothing. Take accepts another document of the same generation, because the manager
// adds values of its own to those of the spec.
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
		log = log.V(1) // another field of the spec has changed
	}
	log.Info("Took settings", "generation", next.Generation, "how", how, "hosts", len(next.Origins.Hosts),
		"origins", len(next.Origins.Origins), "verbosity", next.Verbosity)
	return nil
}

// same reports whether the values are equal, whatever documents they are from.
func (v *Values) same(other *Values) bool {
	return v.Verbosity == other.Verbosity && slices.Equal(v.Origins.Hosts, other.Origins.Hosts) && slices.Equal(v.Origins.Origins, other.Origins.Origins)
}

// Run reads the mounted document again and again, until the context ends.
func (l *Live) Run(ctx context.Context) {
	if l.options.Dir == "" {
		return
	}
	tick := time.Tick(readInterval)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			l.Reload()
		}
	}
}

// Reload reads the mounted document, and takes it if it has changed since the last time. An unchanged
// one may be older than a push, because the kubelet is behind the manager. An invalid document
// changes nothing, and Reload logs it once.
func (l *Live) Reload() {
	if l.options.Dir == "" {
		return
	}
	l.taking.Lock()
	defer l.taking.Unlock()
	document, err := os.ReadFile(filepath.Join(l.options.Dir, adapterapi.SettingsFile))
	switch {
	case errors.Is(err, fs.ErrNotExist): // there is no document yet
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

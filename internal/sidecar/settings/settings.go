// Package settings holds the configuration that can change while an adapter runs. The manager writes
// it as a document, which reaches the adapter in two ways. A mounted ConfigMap has it from the start.
// The manager also pushes it, because the kubelet takes a minute or more to update a mount.
package settings

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/document"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
)

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

	taking sync.Mutex // held while a document is taken
	mount  document.Mount
}

// New returns settings with the values of the start.
func New(options Options) *Live {
	l := &Live{options: options}
	start := options.Start
	start.Generation, start.Digest = 0, ""
	l.values.Store(&start)
	l.mount = document.Mount{Name: "settings", Take: func(text []byte) error { return l.take(text, "mounted") }, Log: options.Log}
	if options.Dir != "" {
		l.mount.Path = filepath.Join(options.Dir, adapterapi.SettingsFile)
	}
	return l
}

// Run reads the mounted document again and again, until the context ends.
func (l *Live) Run(ctx context.Context) { l.mount.Run(ctx) }

// Reload reads the mounted document.
func (l *Live) Reload() { l.mount.Reload() }

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
func (l *Live) Take(text []byte) error { return l.take(text, "pushed") }

func (l *Live) take(text []byte, how string) error {
	l.taking.Lock()
	defer l.taking.Unlock()
	settings, err := adapterapi.DecodeSettings(text)
	if err != nil {
		return err
	}
	next := &Values{
		Generation: settings.Generation, Digest: adapterapi.SettingsDigest(text),
		Origins:   origin.Policy{Origins: settings.AllowedOrigins, Hosts: settings.AllowedHosts},
		Verbosity: settings.Verbosity,
	}
	if err := next.Origins.Validate(); err != nil {
		return fmt.Errorf("use settings: %w", err)
	}
	now := l.values.Load()
	switch {
	case next.Generation < now.Generation:
		return fmt.Errorf("take settings: %w: generation %d after %d", document.ErrOlder, next.Generation, now.Generation)
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

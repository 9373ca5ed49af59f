// Package document follows a document that the manager writes for an adapter, in a directory that the
// kubelet keeps up to date. The manager also pushes the document, because the kubelet takes a minute or
// more.
package document

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// ReadInterval is how often the adapter reads a mounted document. It matters only if no push arrives.
const ReadInterval = 5 * time.Second

// ErrOlder refuses a document that is older than the one in effect.
var ErrOlder = errors.New("the document is older than the one in effect")

// Mount is a mounted document.
type Mount struct {
	Path string // of the file; empty if there is none
	Name string // of the document, in errors
	// Take puts a document into effect. Its errors wrap ErrOlder for one that is out of date.
	Take func(text []byte) error
	Log  logr.Logger

	mu         sync.Mutex
	taken      string // digest of the document that was last taken, or older than the one in effect
	refused    string // digest of the document that was last refused, and logged
	unreadable bool   // the last read failed
}

// Run reads the document again and again, until the context ends.
func (m *Mount) Run(ctx context.Context) {
	if m.Path == "" {
		return
	}
	tick := time.Tick(ReadInterval)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			m.Reload()
		}
	}
}

// Reload reads the document, and takes it if it has changed since the last time. An unchanged one may be
// older than a push, because the kubelet is behind the manager. An invalid document changes nothing, and
// Reload logs it once. It tries the document again the next time: the keys that sign it may come later.
func (m *Mount) Reload() {
	if m.Path == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	text, err := os.ReadFile(m.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // there is no document yet
		m.taken, m.unreadable = "", false
		return
	case err != nil:
		if !m.unreadable {
			m.keep(fmt.Errorf("read %s: %w", m.Name, err))
		}
		m.taken, m.unreadable = "", true
		return
	}
	m.unreadable = false
	digest := adapterapi.SettingsDigest(text)
	if digest == m.taken {
		return
	}
	switch err := m.Take(text); {
	case err == nil || errors.Is(err, ErrOlder):
		m.taken, m.refused = digest, ""
	case digest != m.refused:
		m.refused = digest
		m.keep(err)
	}
}

func (m *Mount) keep(err error) {
	m.Log.Error(err, "Keep the "+m.Name+" in effect", "file", m.Path)
}

// Package keys holds the keys of the server as they are now. They are read from a mounted
// Secret, and read again as long as the adapter runs: a key changes without a restart.
package keys

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// lookInterval is how often the files are looked at. The kubelet takes longer to bring
// them up to date.
const lookInterval = 10 * time.Second

// Keys are the keys of one server.
type Keys struct {
	dir    string // where they are read from; empty if they never change
	shared bool   // a manager has them, too
	podUID string // of the pod that a manager's proof has to name
	held   atomic.Pointer[held]
}

// held is what is made of the keys when they are read.
type held struct {
	ring adapterapi.Keyring
	ids  *sessionid.Codec
}

// Generate makes a key that this process alone has: the manager cannot prove itself.
func Generate() (*Keys, error) {
	k := &Keys{}
	return k, k.hold(adapterapi.Keyring{Current: adapterapi.NewKey()})
}

// New returns keys that a manager has, too, and that never change.
func New(ring adapterapi.Keyring, podUID string) (*Keys, error) {
	k := &Keys{shared: true, podUID: podUID}
	return k, k.hold(ring)
}

// Load reads the keys from the directory.
func Load(dir, podUID string) (*Keys, error) {
	k := &Keys{dir: dir, shared: true, podUID: podUID}
	ring, err := k.read()
	if err != nil {
		return nil, err
	}
	return k, k.hold(ring)
}

func (k *Keys) read() (adapterapi.Keyring, error) {
	var entries [2]string
	for i, name := range []string{adapterapi.KeysCurrent, adapterapi.KeysAccepted} {
		content, err := os.ReadFile(filepath.Join(k.dir, name))
		if err != nil {
			return adapterapi.Keyring{}, fmt.Errorf("read keys: %w", err)
		}
		entries[i] = string(content)
	}
	ring, err := adapterapi.ParseKeyring(entries[0], entries[1])
	if err != nil {
		return adapterapi.Keyring{}, fmt.Errorf("read keys in %s: %w", k.dir, err)
	}
	return ring, nil
}

func (k *Keys) hold(ring adapterapi.Keyring) error {
	var derived [][]byte
	for _, key := range ring.All() {
		derived = append(derived, key.Derive(adapterapi.UseSessionIDs))
	}
	ids, err := sessionid.New(derived...)
	if err != nil {
		return fmt.Errorf("use keys: %w", err)
	}
	k.held.Store(&held{ring, ids})
	return nil
}

// Run reads the keys again and again, until the context ends. Keys that cannot be read
// leave those in use that are.
func (k *Keys) Run(ctx context.Context, log logr.Logger) {
	if k.dir == "" {
		return
	}
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		changed, err := k.Reload()
		switch {
		case err != nil && !failed:
			log.Error(err, "Keep the keys that are in use")
		case changed:
			log.Info("Read the server's keys again", "current", k.held.Load().ring.Current.ID(), "accepted", len(k.held.Load().ring.Accepted))
		}
		failed = err != nil
	}
}

// Reload reads the keys again, and says whether they have changed.
func (k *Keys) Reload() (changed bool, err error) {
	ring, err := k.read()
	if err != nil || ring.Equal(k.held.Load().ring) {
		return false, err
	}
	return true, k.hold(ring)
}

// Mint makes a session id for the owner.
func (k *Keys) Mint(owner sessionid.Owner) string { return k.held.Load().ids.Mint(owner) }

// IsProbe says whether a request of the client port proves to be the manager's.
func (k *Keys) IsProbe(r *http.Request) bool {
	presented := r.Header[adapterapi.HeaderProbe]
	if len(presented) != 1 || !k.shared {
		return false
	}
	_, ok := k.held.Load().ring.Verify(presented[0], adapterapi.ProbeSubject(k.podUID), time.Now())
	return ok
}

// CatalogProof verifies a request for the catalogue at the admin port.
func (k *Keys) CatalogProof(r *http.Request) (proof adapterapi.Proof, ok bool) {
	return k.proof(r, adapterapi.CatalogSubject(k.podUID))
}

// SettingsProof verifies a push of settings to the admin port, but for its body.
func (k *Keys) SettingsProof(r *http.Request) (proof adapterapi.Proof, ok bool) {
	return k.proof(r, adapterapi.SettingsSubject(k.podUID))
}

func (k *Keys) proof(r *http.Request, subject adapterapi.Subject) (proof adapterapi.Proof, ok bool) {
	presented := r.Header[adapterapi.HeaderProof]
	if len(presented) != 1 || !k.shared {
		return adapterapi.Proof{}, false
	}
	return k.held.Load().ring.Verify(presented[0], subject, time.Now())
}

// Shared says whether a manager has the keys, too.
func (k *Keys) Shared() bool { return k.shared }

// Package keys holds the keys of one server. The adapter reads them from a mounted Secret, again and
// again, so that a key can change without a restart.
package keys

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

// readInterval is how often the adapter reads the files. The kubelet takes longer to update them.
const readInterval = 10 * time.Second

// Keys are the keys of one server.
type Keys struct {
	dir     string // of the files; empty if the keys never change
	shared  bool   // the manager has the keys, too
	podUID  string // which the manager's proofs name
	current atomic.Pointer[current]
}

// current are the keys that the adapter has read last.
type current struct {
	ring   adapterapi.Keyring
	ids    *sessionid.Codec
	states *sessionid.States
}

// Generate makes a key that this process alone has, so that no manager can prove itself.
func Generate() (*Keys, error) {
	k := &Keys{}
	return k, k.use(adapterapi.Keyring{Current: adapterapi.NewKey()})
}

// New returns keys that the manager has, too, and that never change. It is for tests.
func New(ring adapterapi.Keyring, podUID string) (*Keys, error) {
	k := &Keys{shared: true, podUID: podUID}
	return k, k.use(ring)
}

// Load reads the keys from the directory.
func Load(dir, podUID string) (*Keys, error) {
	k := &Keys{dir: dir, shared: true, podUID: podUID}
	ring, err := k.read()
	if err != nil {
		return nil, err
	}
	return k, k.use(ring)
}

func (k *Keys) read() (adapterapi.Keyring, error) {
	entries, err := readTogether(k.dir)
	if err != nil {
		return adapterapi.Keyring{}, fmt.Errorf("read keys: %w", err)
	}
	ring, err := adapterapi.ParseKeyring(entries[0], entries[1])
	if err != nil {
		return adapterapi.Keyring{}, fmt.Errorf("read keys in %s: %w", k.dir, err)
	}
	return ring, nil
}

func (k *Keys) use(ring adapterapi.Keyring) error {
	var forIDs, forStates [][]byte
	for _, key := range ring.All() {
		forIDs = append(forIDs, key.Derive(adapterapi.UseSessionIDs))
		forStates = append(forStates, key.Derive(adapterapi.UseStates))
	}
	ids, idsErr := sessionid.New(forIDs...)
	states, statesErr := sessionid.NewStates(forStates...)
	if err := errors.Join(idsErr, statesErr); err != nil {
		return fmt.Errorf("use keys: %w", err)
	}
	k.current.Store(&current{ring, ids, states})
	return nil
}

// Run reads the keys again and again, until the context ends. If it cannot read them, the keys in
// use stay.
func (k *Keys) Run(ctx context.Context, log logr.Logger) {
	if k.dir == "" {
		return
	}
	tick := time.Tick(readInterval)
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		changed, err := k.Reload()
		switch {
		case err != nil && !failed:
			log.Error(err, "Keep the keys that are in use")
		case changed:
			log.Info("Read the server's keys again", "current", k.current.Load().ring.Current.ID(), "accepted", len(k.current.Load().ring.Accepted))
		}
		failed = err != nil
	}
}

// Reload reads the keys again, and reports whether they have changed.
func (k *Keys) Reload() (changed bool, err error) {
	ring, err := k.read()
	if err != nil || ring.Equal(k.current.Load().ring) {
		return false, err
	}
	return true, k.use(ring)
}

// Mint makes a session id for the owner.
func (k *Keys) Mint(owner sessionid.Owner) string { return k.current.Load().ids.Mint(owner) }

// Parse returns the owner that a session id names, or sessionid.ErrInvalid.
func (k *Keys) Parse(id string) (sessionid.Owner, error) { return k.current.Load().ids.Parse(id) }

// MintKept makes the id of a session that the server keeps. It returns false if the session has none that fits.
func (k *Keys) MintKept(session *sessionid.Kept) (string, bool) {
	return k.current.Load().ids.MintKept(session)
}

// ParseKept reads the id of a session that the server keeps. The error is sessionid.ErrInvalid.
func (k *Keys) ParseKept(id string) (sessionid.Kept, error) {
	return k.current.Load().ids.ParseKept(id)
}

// States makes and reads the seals of states.
func (k *Keys) States() *sessionid.States { return k.current.Load().states }

// IsProbe reports whether the manager makes a request to the client port: the request proves that
// its sender has a key.
func (k *Keys) IsProbe(r *http.Request) bool {
	_, ok := k.verify(r.Header[adapterapi.HeaderProbe], adapterapi.ProbeSubject)
	return ok
}

// Proof verifies the proof of a request to the admin port. The proof does not cover the body.
func (k *Keys) Proof(r *http.Request, subject func(podUID string) adapterapi.Subject) (proof adapterapi.Proof, ok bool) {
	return k.verify(r.Header[adapterapi.HeaderProof], subject)
}

func (k *Keys) verify(presented []string, subject func(podUID string) adapterapi.Subject) (proof adapterapi.Proof, ok bool) {
	if len(presented) != 1 || !k.shared {
		return adapterapi.Proof{}, false
	}
	return k.current.Load().ring.Verify(presented[0], subject(k.podUID), time.Now())
}

// Use says which keys the adapter goes by. The ids are those of the sessions of clients. A session whose key is not
// known counts for every key but the current one, so that no key is taken for unused that may be in use.
func (k *Keys) Use(ids func() []string) adapterapi.KeyUse {
	now := k.current.Load()
	use := adapterapi.KeyUse{Current: now.ring.Current.ID()}
	if len(now.ring.Accepted) == 0 {
		return use
	}
	sessions := make(map[int]int64) // by the index of their key
	for _, id := range ids() {
		sessions[now.ids.SealedBy(id)]++
	}
	for i, key := range now.ring.Accepted {
		use.Others = append(use.Others, adapterapi.OtherKey{ID: key.ID(), Sessions: sessions[i+1] + sessions[sessionid.Unknown]})
	}
	slices.SortFunc(use.Others, func(a, b adapterapi.OtherKey) int { return strings.Compare(a.ID, b.ID) })
	return use
}

// Ring returns the keys that the adapter has read last.
func (k *Keys) Ring() adapterapi.Keyring { return k.current.Load().ring }

// Shared reports whether the manager has the keys, too.
func (k *Keys) Shared() bool { return k.shared }

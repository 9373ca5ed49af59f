package sidecar

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
)

// rotating are replicas whose keys change, each when a test says so.
type rotating struct {
	t        *testing.T
	replicas []*replica
	dirs     []string
	secret   adapterapi.Keyring // as the Secret has it; replicas may have read an earlier one
	sessions []*client
}

func startRotating(t *testing.T, count int) *rotating {
	t.Helper()
	r := &rotating{t: t, secret: adapterapi.Keyring{Current: adapterapi.NewKey()}}
	r.replicas = startReplicas(t, count, func(c *config.Config) {
		dir := t.TempDir()
		writeRing(t, dir, r.secret)
		held, err := keys.Load(dir, testPodUID)
		if err != nil {
			t.Fatal(err)
		}
		r.dirs, c.Keys = append(r.dirs, dir), held
	})
	return r
}

func writeRing(t *testing.T, dir string, ring adapterapi.Keyring) {
	t.Helper()
	current, accepted := ring.Encode()
	for name, content := range map[string]string{adapterapi.KeysCurrent: current, adapterapi.KeysAccepted: accepted} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// read has a replica read the Secret.
func (r *rotating) read(i int) {
	r.t.Helper()
	writeRing(r.t, r.dirs[i], r.secret)
	if _, err := r.replicas[i].env.Keys.Reload(); err != nil {
		r.t.Fatal(err)
	}
}

// open opens a session at a replica.
func (r *rotating) open(i int) {
	r.t.Helper()
	c, err := newClient(r.t.Context(), "http://"+r.replicas[i].host+Path)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.http.CloseIdleConnections)
	r.sessions = append(r.sessions, c)
}

// end ends the sessions whose ids a key has sealed, and returns their clients.
func (r *rotating) end(key adapterapi.Key) (ended []*client) {
	r.t.Helper()
	of, err := keys.New(adapterapi.Keyring{Current: key}, testPodUID)
	if err != nil {
		r.t.Fatal(err)
	}
	var kept []*client
	for _, c := range r.sessions {
		if _, err := of.Parse(c.session); err != nil {
			kept = append(kept, c)
			continue
		}
		response, err := c.do(r.t.Context(), http.MethodDelete, "")
		if err != nil || response.StatusCode != http.StatusNoContent {
			r.t.Fatalf("end a session: %v, %v", response, err)
		}
		_ = response.Body.Close()
		ended = append(ended, c)
	}
	r.sessions = kept
	return ended
}

// check calls in every session at every replica, as a client and the manager do.
func (r *rotating) check(step string) {
	r.t.Helper()
	for i, to := range r.replicas {
		for n, c := range r.sessions {
			if err := r.call(c, to); err != nil {
				r.t.Fatalf("%s: session %d at replica %d: %v", step, n, i, err)
			}
		}
		if _, err := r.use(i); err != nil {
			r.t.Fatalf("%s: the manager asks replica %d: %v", step, i, err)
		}
	}
}

func (r *rotating) call(c *client, to *replica) error {
	at := *c
	at.url = "http://" + to.host + Path
	id := rand.IntN(1_000_000)
	got, err := at.messages(r.t.Context(), call(id, "echo", `"text":"here"`))
	if err != nil {
		return err
	}
	return answers(fmt.Sprintf(`"id":%d,`, id), "here")(got)
}

// use is what a replica says of its keys to the manager, which has read the Secret.
func (r *rotating) use(i int) (adapterapi.KeyUse, error) {
	proof, header := adapterapi.NewProof(r.secret.Current, adapterapi.CatalogSubject(testPodUID), time.Now())
	request := httptest.NewRequest(http.MethodGet, adapterapi.PathCatalog, http.NoBody)
	request.Header.Set(adapterapi.HeaderProof, header)
	request.Header.Set(adapterapi.HeaderKeys, "wanted")
	w := httptest.NewRecorder()
	r.replicas[i].Adapter.admin.Handler.ServeHTTP(w, request)
	said := w.Header().Get(adapterapi.HeaderKeys)
	if !proof.Opens(w.Header().Get(adapterapi.HeaderAnswer), adapterapi.Answer{
		Status: w.Code, ETag: w.Header().Get("ETag"), Sessions: w.Header().Get(adapterapi.HeaderSessions), Body: w.Body.Bytes(), Keys: said,
	}) {
		return adapterapi.KeyUse{}, fmt.Errorf("%d without a signature: %s", w.Code, w.Body)
	}
	return adapterapi.ParseKeyUse(said)
}

// step changes the Secret, and has the replicas read it one after the other. After each, sessions are opened, and all
// sessions go on at every replica.
func (r *rotating) step(name string, ring adapterapi.Keyring, order []int) {
	r.t.Helper()
	r.secret = ring
	r.check(name + ", and no replica has read it")
	for _, i := range order {
		r.read(i)
		r.open(i)
		r.check(fmt.Sprintf("%s, and replica %d has read it", name, i))
	}
}

// Sessions that were opened before, during and after a rotation go on at every replica, in whatever order the replicas read
// the Secret. No replica knows what a dropped key has sealed.
func TestRotation(t *testing.T) {
	t.Parallel()
	r := startRotating(t, 3)
	r.open(0)
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		last, next := r.secret.Current, adapterapi.NewKey()
		r.step("added", adapterapi.Keyring{Current: last, Accepted: []adapterapi.Key{next}}, order)
		r.step("switched", adapterapi.Keyring{Current: next, Accepted: []adapterapi.Key{last}}, order)
		var open int64
		for i := range r.replicas {
			use, err := r.use(i)
			if err != nil || use.Current != next.ID() || len(use.Others) != 1 || use.Others[0].ID != last.ID() {
				t.Fatalf("replica %d uses %v, %v", i, use, err)
			}
			open += use.Others[0].Sessions
		}
		ended := r.end(last)
		if open != int64(len(ended)) || open == 0 {
			t.Errorf("replicas count %d sessions of the last key, and there are %d", open, len(ended))
		}
		for i := range r.replicas {
			if use, err := r.use(i); err != nil || use.Uses(last.ID()) {
				t.Errorf("replica %d uses the last key after all its sessions have ended: %v, %v", i, use, err)
			}
		}
		r.step("dropped", adapterapi.Keyring{Current: next}, order)
		for _, c := range ended {
			c.must(t, http.StatusNotFound)
		}
	}
}

// An id of a dropped key is unknown at every replica that does not have its session.
func TestDroppedKey(t *testing.T) {
	t.Parallel()
	r := startRotating(t, 3)
	r.open(0)
	r.secret = adapterapi.Keyring{Current: adapterapi.NewKey()}
	for i := range r.replicas {
		r.read(i)
	}
	dials := r.replicas[1].dials()
	for _, i := range []int{1, 2} {
		c := *r.sessions[0]
		c.url = "http://" + r.replicas[i].host + Path
		c.must(t, http.StatusNotFound)
	}
	if got := r.replicas[1].dials(); got != dials {
		t.Errorf("a replica has dialed %d times for an unknown ID", got-dials)
	}
}

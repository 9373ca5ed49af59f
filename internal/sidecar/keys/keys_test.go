package keys

import (
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

const pod = "11111111-2222-3333-4444-555555555555"

// mount writes keys the way the kubelet does: into a directory of their own, to which a
// link is then moved.
func mount(t *testing.T, dir string, current adapterapi.Key, accepted ...adapterapi.Key) {
	t.Helper()
	version := filepath.Join(dir, "..version-"+rand.Text())
	if err := os.Mkdir(version, 0o700); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, key := range accepted {
		lines.WriteString(key.Encode() + "\n")
	}
	for name, content := range map[string]string{adapterapi.KeysCurrent: current.Encode(), adapterapi.KeysAccepted: lines.String()} {
		if err := os.WriteFile(filepath.Join(version, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(dir, name)
		if _, err := os.Lstat(link); err != nil {
			if err := os.Symlink(filepath.Join("..data", name), link); err != nil {
				t.Fatal(err)
			}
		}
	}
	next := filepath.Join(dir, "..next")
	if err := os.Symlink(filepath.Base(version), next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

func probe(key adapterapi.Key) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/mcp", http.NoBody)
	_, proof := adapterapi.NewProof(key, adapterapi.ProbeSubject(pod), time.Now())
	r.Header.Set(adapterapi.HeaderProbe, proof)
	return r
}

func catalog(key adapterapi.Key) *http.Request {
	r := httptest.NewRequest(http.MethodGet, adapterapi.PathCatalog, http.NoBody)
	_, proof := adapterapi.NewProof(key, adapterapi.CatalogSubject(pod), time.Now())
	r.Header.Set(adapterapi.HeaderProof, proof)
	return r
}

// Keys are rotated without a restart: the next one is accepted before it is used, and the
// last one as long as anything that was made with it is around.
func TestKeysAreReadAgain(t *testing.T) {
	old, next := adapterapi.NewKey(), adapterapi.NewKey()
	dir := t.TempDir()
	mount(t, dir, old)
	k, err := Load(dir, pod)
	if err != nil {
		t.Fatal(err)
	}
	check := func(step string, accepted map[adapterapi.Key]bool) {
		t.Helper()
		for key, want := range accepted {
			_, proved := k.Proof(catalog(key), adapterapi.CatalogSubject)
			if got := k.IsProbe(probe(key)); got != want || proved != want {
				t.Errorf("%s: a probe of %s is taken: %t, for the catalog: %t, want %t", step, key, got, proved, want)
			}
		}
	}
	check("at first", map[adapterapi.Key]bool{old: true, next: false})
	id := k.Mint(sessionid.Owner{})
	for _, step := range []struct {
		name              string
		current, accepted adapterapi.Key
		readable          bool // the id that was minted at first
	}{{"next is announced", old, next, true}, {"next is used", next, old, true}, {"old is gone", next, next, false}} {
		mount(t, dir, step.current, step.accepted)
		if changed, err := k.Reload(); err != nil || !changed {
			t.Fatalf("%s: %t, %v", step.name, changed, err)
		}
		if changed, err := k.Reload(); err != nil || changed {
			t.Errorf("%s: read again, nothing changes: %t, %v", step.name, changed, err)
		}
		check(step.name, map[adapterapi.Key]bool{step.current: true, step.accepted: true})
		if _, err := k.current.Load().ids.Parse(id); (err == nil) != step.readable {
			t.Errorf("%s: an id of the old key: %v", step.name, err)
		}
	}
	check("at last", map[adapterapi.Key]bool{old: false})
}

// Session ids are not made with the key that the manager shows that it has.
func TestIDsHaveAKeyOfTheirOwn(t *testing.T) {
	key := adapterapi.NewKey()
	k, err := New(adapterapi.Keyring{Current: key}, pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, use := range []adapterapi.Use{adapterapi.UseCatalog, adapterapi.UseProbe, adapterapi.UseReferences} {
		codec, err := sessionid.New(key.Derive(use))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := codec.Parse(k.Mint(sessionid.Owner{})); err == nil {
			t.Errorf("an id can be read with the key for %q", use)
		}
	}
}

// Keys that cannot be read any more are no reason to do without: those in use stay, and
// the log says so once.
func TestUnreadableKeysChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, next := adapterapi.NewKey(), adapterapi.NewKey()
		dir := t.TempDir()
		mount(t, dir, key)
		k, err := Load(dir, pod)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		go k.Run(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
		pass := func() {
			time.Sleep(readInterval)
			synctest.Wait()
		}
		pass()
		if err := os.Remove(filepath.Join(versionOf(dir), adapterapi.KeysCurrent)); err != nil {
			t.Fatal(err)
		}
		pass()
		pass()
		if !k.IsProbe(probe(key)) || len(lines) != 1 || !strings.Contains(lines[0], "Keep the keys") {
			t.Errorf("the key is not taken any more, or the log has %q", lines)
		}
		mount(t, dir, next)
		pass()
		if !k.IsProbe(probe(next)) || len(lines) != 2 || !strings.Contains(lines[1], next.ID()) {
			t.Errorf("the next key is not taken, or the log has %q", lines)
		}
		for _, line := range lines {
			if strings.Contains(line, key.Encode()[:16]) || strings.Contains(line, next.Encode()[:16]) {
				t.Errorf("the log tells a key: %s", line)
			}
		}
	})
}

func TestKeyOfThisProcessAlone(t *testing.T) {
	k, err := Generate()
	if err != nil {
		t.Fatal(err)
	}
	own := k.current.Load().ring.Current
	if _, proved := k.Proof(catalog(own), adapterapi.CatalogSubject); proved || k.IsProbe(probe(own)) || k.Shared() {
		t.Error("there is no manager that could have this key")
	}
}

func TestKeysThatAreNone(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir, pod); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want where they were looked for", err)
	}
	for _, name := range []string{adapterapi.KeysCurrent, adapterapi.KeysAccepted} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(dir, pod); err == nil || !strings.Contains(err.Error(), "hexadecimal") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want what a key looks like", err)
	}
}

// While the kubelet replaces the volume, the adapter reads both entries of one version. With the old current key and
// the newer accepted ones it would refuse the manager, which signs with the next key.
func TestEntriesOfOneVersion(t *testing.T) {
	old, next := adapterapi.NewKey(), adapterapi.NewKey()
	dir := t.TempDir()
	mount(t, dir, old, next)
	k, err := Load(dir, pod)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 500 {
			mount(t, dir, next, old)
			mount(t, dir, old, next)
		}
	}()
	for over := false; !over; {
		select {
		case <-ended:
			over = true
		default:
		}
		if _, err := k.Reload(); err != nil {
			t.Fatal(err)
		}
		if !k.IsProbe(probe(old)) || !k.IsProbe(probe(next)) {
			t.Fatalf("the ring is %v", k.Ring().All())
		}
	}
}

// Each version of the volume is deleted when the next one is there.
func TestVersionIsDeletedWhileItIsRead(t *testing.T) {
	key := adapterapi.NewKey()
	dir := t.TempDir()
	mount(t, dir, key)
	gone := versionOf(dir)
	mount(t, dir, key)
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	if _, err := readVersion(gone); !os.IsNotExist(err) {
		t.Errorf("the deleted version: %v", err)
	}
	if _, err := readTogether(dir); err != nil {
		t.Errorf("the version after that: %v", err)
	}
}

// The manager drops a key when no session is of it. A session whose key is not known may be of any.
func TestUse(t *testing.T) {
	old, next := adapterapi.NewKey(), adapterapi.NewKey()
	held := func(current adapterapi.Key, accepted ...adapterapi.Key) *Keys {
		k, err := New(adapterapi.Keyring{Current: current, Accepted: accepted}, pod)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	ofOld, ofNext := held(old).Mint(sessionid.Owner{}), held(next).Mint(sessionid.Owner{})
	foreign := held(adapterapi.NewKey()).Mint(sessionid.Owner{})
	other := func(key adapterapi.Key, sessions int64) []adapterapi.OtherKey {
		return []adapterapi.OtherKey{{ID: key.ID(), Sessions: sessions}}
	}
	for name, test := range map[string]struct {
		keys     *Keys
		sessions []string
		want     adapterapi.KeyUse
	}{
		"one key":      {held(old), []string{ofOld}, adapterapi.KeyUse{Current: old.ID()}},
		"added":        {held(old, next), []string{ofOld, ofOld}, adapterapi.KeyUse{Current: old.ID(), Others: other(next, 0)}},
		"switched":     {held(next, old), []string{ofOld, ofOld, ofNext}, adapterapi.KeyUse{Current: next.ID(), Others: other(old, 2)}},
		"none is left": {held(next, old), []string{ofNext}, adapterapi.KeyUse{Current: next.ID(), Others: other(old, 0)}},
		"unknown":      {held(next, old), []string{ofNext, foreign, "?"}, adapterapi.KeyUse{Current: next.ID(), Others: other(old, 2)}},
	} {
		got := test.keys.Use(func() []string { return test.sessions })
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if parsed, err := adapterapi.ParseKeyUse(got.String()); err != nil || !cmp.Equal(parsed, got) {
			t.Errorf("%s: the manager reads %v, %v", name, parsed, err)
		}
	}
	third := adapterapi.NewKey()
	if got := held(next, old, third).Use(func() []string { return nil }); !slices.IsSortedFunc(got.Others, func(a, b adapterapi.OtherKey) int { return strings.Compare(a.ID, b.ID) }) {
		t.Errorf("in no order: %v", got)
	}
}

package settings

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/document"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
)

// textOf returns a document that allows the host and logs that much.
func textOf(t *testing.T, generation int64, host string, verbosity int) []byte {
	t.Helper()
	encoded, err := adapterapi.Settings{
		Version: adapterapi.SettingsVersion, Generation: generation, AllowedHosts: []string{host}, Verbosity: verbosity,
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return []byte(encoded.Text)
}

// mount writes a document the way the kubelet does: into a directory of its own, to which
// a link is then moved.
func mount(t *testing.T, dir string, content []byte) {
	t.Helper()
	version := filepath.Join(dir, "..version-"+rand.Text())
	link, next := filepath.Join(dir, adapterapi.SettingsFile), filepath.Join(dir, "..next")
	err := errors.Join(os.Mkdir(version, 0o700), os.WriteFile(filepath.Join(version, adapterapi.SettingsFile), content, 0o600))
	if _, missing := os.Lstat(link); missing != nil {
		err = errors.Join(err, os.Symlink(filepath.Join("..data", adapterapi.SettingsFile), link))
	}
	if err := errors.Join(err, os.Symlink(filepath.Base(version), next), os.Rename(next, filepath.Join(dir, "..data"))); err != nil {
		t.Fatal(err)
	}
}

// want checks what holds.
func want(t *testing.T, l *Live, step string, generation int64, host string, verbosity int) {
	t.Helper()
	got := l.Load()
	if got.Generation != generation || got.Verbosity != verbosity || !cmp.Equal(l.Origins().Hosts, []string{host}) {
		t.Errorf("%s: got %+v, want generation %d, host %s, verbosity %d", step, got, generation, host, verbosity)
	}
}

var flags = Values{Origins: origin.Policy{Hosts: []string{"flag"}}, Verbosity: 1}

func TestTake(t *testing.T) {
	var changes []int64
	l := New(Options{Start: flags, Changed: func(v *Values) { changes = append(changes, v.Generation) }})
	want(t, l, "at first", 0, "flag", 1)
	if diff := cmp.Diff(adapterapi.SettingsState{Version: 1}, l.State()); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	first := textOf(t, 5, "five", 0)
	for _, step := range []struct {
		name       string
		document   []byte
		err        string
		generation int64
		host       string
	}{
		{"the first", first, "", 5, "five"},
		{"the same", first, "", 5, "five"},
		{"an older one", textOf(t, 4, "four", 0), "older than the one in effect: generation 4 after 5", 5, "five"},
		{"a broken one", []byte(`{"version":1,"generation":6}`), "allowedHosts is empty", 5, "five"},
		{"one that no header can match", textOf(t, 6, "https://six", 0), `allowed-host "https://six" can never match`, 5, "five"},
		{"another of that generation", textOf(t, 5, "other", 0), "", 5, "other"},
		{"a newer one", textOf(t, 9, "nine", 0), "", 9, "nine"},
		{"the first again", first, "older", 9, "nine"},
	} {
		err := l.Take(step.document)
		if (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("%s: %v, want %q", step.name, err, step.err)
		}
		if old := strings.Contains(step.err, "older"); errors.Is(err, document.ErrOlder) != old {
			t.Errorf("%s: is older: %t", step.name, !old)
		}
		want(t, l, step.name, step.generation, step.host, 0)
	}
	if diff := cmp.Diff([]int64{5, 5, 9}, changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// A reader gets the values of one document or of the other, and never a mix of both.
func TestSwapIsAtomic(t *testing.T) {
	l := New(Options{Start: flags})
	const documents = 200
	var readers, writers sync.WaitGroup
	over := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for last := int64(0); ; {
				v := l.Load()
				if host := fmt.Sprint("host-", v.Generation); v.Generation > 0 && (v.Origins.Hosts[0] != host || v.Verbosity != int(v.Generation%5)) {
					t.Errorf("generation %d has host %s and verbosity %d", v.Generation, v.Origins.Hosts[0], v.Verbosity)
				}
				if v.Generation < last {
					t.Errorf("generation %d after %d", v.Generation, last)
				}
				last = v.Generation
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	var all [documents][]byte
	for i := range all {
		all[i] = textOf(t, int64(i+1), fmt.Sprint("host-", i+1), (i+1)%5)
	}
	for first := range 2 {
		writers.Go(func() {
			for i := first; i < documents; i += 2 {
				if err := l.Take(all[i]); err != nil && !errors.Is(err, document.ErrOlder) {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(over)
	readers.Wait()
	if got := l.Load().Generation; got != documents {
		t.Errorf("at last generation %d, want %d", got, documents)
	}
}

func TestDirectoryIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var mu sync.Mutex
		var lines []string
		l := New(Options{Start: flags, Dir: dir, Log: funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, args)
		}, funcr.Options{})})
		l.Reload()
		want(t, l, "an empty directory", 0, "flag", 1)
		go l.Run(t.Context())
		pass := func() []string {
			time.Sleep(document.ReadInterval)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			told := lines
			lines = nil
			return told
		}
		wantTold := func(step string, told []string, words ...string) {
			t.Helper()
			if len(told) != len(words) {
				t.Fatalf("%s: the log has %q, want %q", step, told, words)
			}
			for i := range words {
				if !strings.Contains(told[i], words[i]) {
					t.Errorf("%s: the log has %q, want %q", step, told, words)
				}
			}
		}
		mount(t, dir, textOf(t, 2, "two", 2))
		wantTold("mounted", pass(), `"generation"=2`)
		want(t, l, "mounted", 2, "two", 2)

		mount(t, dir, textOf(t, 3, "three", 0))
		wantTold("another is mounted", pass(), `"generation"=3`)
		want(t, l, "another is mounted", 3, "three", 0)
		wantTold("nothing changes", pass())

		mount(t, dir, []byte(`{"version":1,"generation":4,"allowedHost":["typo"]}`))
		wantTold("broken", pass(), "allowedHost is not known")
		wantTold("still broken", append(pass(), pass()...))
		want(t, l, "broken", 3, "three", 0)

		if err := l.Take(textOf(t, 7, "seven", 0)); err != nil {
			t.Fatal(err)
		}
		mount(t, dir, textOf(t, 5, "five", 0))
		wantTold("the mount is behind", pass(), `"generation"=7`)
		want(t, l, "the mount is behind", 7, "seven", 0)

		// Only the domain of the cluster is another: the generation is not.
		mount(t, dir, textOf(t, 7, "seven", 0))
		wantTold("the mount has caught up", pass())
		if err := l.Take(textOf(t, 7, "seven.other", 0)); err != nil {
			t.Fatal(err)
		}
		pass()
		want(t, l, "a mount that stays undoes no push", 7, "seven.other", 0)

		if err := os.Remove(filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		wantTold("unmounted", pass())
		want(t, l, "unmounted", 7, "seven.other", 0)
		if err := os.Symlink("..", filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(filepath.Dir(dir), adapterapi.SettingsFile), 0o700); err != nil {
			t.Fatal(err)
		}
		wantTold("no file", append(pass(), pass()...), "read settings")
		want(t, l, "no file", 7, "seven.other", 0)
	})
}

// An adapter that is run by hand goes by its flags.
func TestWithoutDirectory(t *testing.T) {
	l := New(Options{Start: flags})
	l.Reload()
	l.Run(t.Context())
	want(t, l, "run", 0, "flag", 1)
}

package document

import (
	"context"
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
)

// mounted is a Mount of a file in a directory of its own, with what it did.
type mounted struct {
	t     *testing.T
	mount Mount

	mu    sync.Mutex
	taken []string // what Take got since the last look
	told  []string // what the log says since then
	fail  error    // of Take
}

func newMounted(t *testing.T) *mounted {
	t.Helper()
	m := &mounted{t: t}
	m.mount = Mount{
		Path: filepath.Join(t.TempDir(), "document.json"), Name: "test document",
		Take: func(text []byte) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.taken = append(m.taken, string(text))
			return m.fail
		},
		Log: funcr.New(func(_, args string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.told = append(m.told, args)
		}, funcr.Options{}),
	}
	return m
}

func (m *mounted) write(text string) {
	m.t.Helper()
	if err := os.WriteFile(m.mount.Path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// want compares what Take got, and what the log says, since the last call.
func (m *mounted) want(step string, taken []string, told ...string) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if diff := cmp.Diff(taken, m.taken); diff != "" {
		m.t.Errorf("%s: taken (-want +got):\n%s", step, diff)
	}
	if len(told) != len(m.told) {
		m.t.Fatalf("%s: the log says %q, want %q", step, m.told, told)
	}
	for i := range told {
		if !strings.Contains(m.told[i], told[i]) {
			m.t.Errorf("%s: the log says %q, want %q", step, m.told[i], told[i])
		}
	}
	m.taken, m.told = nil, nil
}

func TestReload(t *testing.T) {
	m := newMounted(t)
	reload := func(step string, taken []string, told ...string) {
		t.Helper()
		m.mount.Reload()
		m.want(step, taken, told...)
	}
	reload("there is none yet", nil)
	m.write("one")
	reload("the first", []string{"one"})
	reload("the same", nil)
	m.write("two")
	reload("another", []string{"two"})

	m.fail = fmt.Errorf("take: %w", ErrOlder)
	m.write("behind")
	reload("older than a push", []string{"behind"})
	reload("still older", nil)

	m.fail = errors.New("it is broken")
	m.write("broken")
	reload("broken", []string{"broken"}, "it is broken")
	m.write("broken, too")
	reload("broken in another way", []string{"broken, too"}, "it is broken")

	m.fail = nil
	if err := os.Remove(m.mount.Path); err != nil {
		t.Fatal(err)
	}
	reload("gone", nil)
	m.write("two")
	reload("back", []string{"two"})
}

// The kubelet may bring the keys of a server after the document that they sign. So a document that is
// refused is tried again, without a line for each time.
func TestRefusedDocumentIsTriedAgain(t *testing.T) {
	m := newMounted(t)
	m.fail = errors.New("the signature is wrong")
	m.write("signed")
	for i, told := range [][]string{{"Keep the test document in effect"}, nil, nil} {
		m.mount.Reload()
		m.want(fmt.Sprint("read ", i), []string{"signed"}, told...)
	}
	m.fail = nil
	m.mount.Reload()
	m.want("with the keys", []string{"signed"})
	m.mount.Reload()
	m.want("once it is taken", nil)
}

func TestUnreadableDocumentIsToldOnce(t *testing.T) {
	m := newMounted(t)
	if err := os.Mkdir(m.mount.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	m.mount.Reload()
	m.want("a directory", nil, "read test document")
	m.mount.Reload()
	m.want("still a directory", nil)
	if err := os.Remove(m.mount.Path); err != nil {
		t.Fatal(err)
	}
	m.write("one")
	m.mount.Reload()
	m.want("a file", []string{"one"})
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounted(t)
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			m.mount.Run(ctx)
		}()
		m.write("one")
		time.Sleep(ReadInterval - time.Nanosecond)
		synctest.Wait()
		m.want("before it is time", nil)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		m.want("after an interval", []string{"one"})
		end()
		<-ended
		m.write("two")
		time.Sleep(2 * ReadInterval)
		m.want("after the end", nil)
	})
}

func TestNothingIsMounted(t *testing.T) {
	m := Mount{Take: func([]byte) error { panic("there is nothing to take") }}
	m.Reload()
	m.Run(t.Context()) // returns
}

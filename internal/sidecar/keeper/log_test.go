package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
)

type logLine struct {
	Level int
	Msg   string
	Error string
	Tools *int
	Took  string
}

// memory is a log that is kept.
type memory struct {
	mu    sync.Mutex
	lines []logLine
}

func (m *memory) logger(t *testing.T) logr.Logger {
	t.Helper()
	return funcr.NewJSON(func(text string) {
		var line logLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Errorf("log line %s: %v", text, err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.lines = append(m.lines, line)
	}, funcr.Options{Verbosity: 5})
}

// at are the messages of one level, with their errors.
func (m *memory) at(level int) (messages []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, line := range m.lines {
		if line.Level != level {
			continue
		}
		if line.Error != "" {
			line.Msg += ": " + line.Error
		}
		messages = append(messages, line.Msg)
	}
	return messages
}

// wordy is an end with last words.
type wordy struct{}

func (wordy) Error() string { return "exit code 3; its last lines: secret" }
func (wordy) Brief() string { return "exit code 3" }

// The log says once what is wrong, again when that changes, and when it is over.
func TestKeeperLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, f := &memory{}, &fleet{}
		f.refuse.Store(true)
		k := newKeeper(t, f, func(o *Options) { o.Log = log.logger(t) })
		await(t, "two more failures", func() bool { return len(log.at(1)) > 1 })
		f.refuse.Store(false)
		eventually(t, k, "ready true, 1 tools, <nil>")
		f.current.Load().stop(wordy{})
		f.awaitStarted(t, 2)
		eventually(t, k, "ready true, 1 tools, <nil>")
		f.refuse.Store(true)
		f.current.Load().stop(wordy{})
		await(t, "four lines", func() bool { return len(log.at(0)) >= 4 })
		want := []string{
			"Server does not work yet: no such command",
			"Server is ready",
			"Server was lost: exit code 3",
			"Server does not work any more: no such command",
		}
		if diff := cmp.Diff(want, log.at(0)); diff != "" {
			t.Errorf("at level 0 (-want +got):\n%s", diff)
		}
		log.mu.Lock()
		defer log.mu.Unlock()
		for _, line := range log.lines {
			if line.Msg == "Server is ready" && line.Level == 0 && (line.Tools == nil || *line.Tools != 1 || line.Took == "") {
				t.Errorf("ready: %+v", line)
			}
		}
	})
}

// What is no fault of the server's is not called one.
func TestKeeperLogOfOtherReasons(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"no room": {ErrNoRoom, "There is no room for a process to look after: there is no room for another server process"},
		"other":   {errors.New("no such command"), "Server does not work yet: no such command"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &memory{}
				newKeeper(t, &fleet{}, func(o *Options) {
					o.Log = log.logger(t)
					o.Connect = func(context.Context, bool) (Connection, error) { return Connection{}, test.err }
				})
				time.Sleep(time.Minute)
				synctest.Wait()
				if diff := cmp.Diff([]string{test.want}, log.at(0)); diff != "" {
					t.Errorf("at level 0 (-want +got):\n%s", diff)
				}
			})
		})
	}
}

package launcher

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/test/hang"
)

func TestLinesAreBounded(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	tests := map[string]struct {
		chunks []string
		want   []string
	}{
		"whole lines":              {[]string{"a\nb\n"}, []string{"a", "b"}},
		"lines in pieces":          {[]string{"a", "b\nc", "d", "\n"}, []string{"ab", "cd"}},
		"empty lines":              {[]string{"\n\n"}, []string{"", ""}},
		"no end":                   {[]string{"a\nb"}, []string{"a", "b"}},
		"longest line":             {[]string{long + "\n"}, []string{long}},
		"longest line in pieces":   {[]string{long, "\n"}, []string{long}},
		"too long":                 {[]string{long + "y\n"}, []string{long, "y"}},
		"too long in pieces":       {[]string{long, "y", "z\n"}, []string{long, "yz"}},
		"much too long":            {[]string{long + long + "y\nz\n"}, []string{long, long, "y", "z"}},
		"nothing":                  {nil, nil},
		"not the text of anything": {[]string{"\xff\x00\n"}, []string{"\xff\x00"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			log := &safeBuffer{}
			pump := &stderrPump{prefix: "[l] ", sink: newSink(log)}
			for _, chunk := range test.chunks {
				pump.take([]byte(chunk))
			}
			pump.flush()
			pump.sink.close(hang.Guard)
			var want strings.Builder
			for _, line := range test.want {
				want.WriteString("[l] " + line + "\n")
			}
			if diff := cmp.Diff(want.String(), log.String()); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

// A process may write gigabytes. The launcher keeps the lines that say why it ended: those
// at the beginning and those at the end.
func TestEndsAreBounded(t *testing.T) {
	const line = "0123456\n"
	tests := map[string]struct {
		chunks     []string
		head, tail string
	}{
		"nothing":              {nil, "", ""},
		"little":               {[]string{"a\n", "b"}, "", "a\nb"},
		"just fits":            {[]string{strings.Repeat("x", maxTail)}, "", strings.Repeat("x", maxTail)},
		"a little more":        {[]string{"first\n", strings.Repeat(line, maxTail/8)}, "first\n" + line, strings.Repeat(line, maxTail/8-1)},
		"the tail has no line": {[]string{"first\n", strings.Repeat("x", maxTail), "\nlast\n"}, "first\n", "last\n"},
		"one long line":        {[]string{strings.Repeat("x", 3*maxTail)}, strings.Repeat("x", maxHead), strings.Repeat("x", maxTail)},
		"long line, ended":     {[]string{strings.Repeat("x", 3*maxTail) + "\n"}, strings.Repeat("x", maxHead), strings.Repeat("x", maxTail-1) + "\n"},
		"many small chunks":    {slicesOf(line, maxTail), strings.Repeat(line, maxHead/8), strings.Repeat(line, maxTail/8-1)},
		"flag and usage": {
			append([]string{"flag provided but not defined: -nope\n"}, slicesOf(line, maxTail)...),
			"flag provided but not defined: -nope\n" + strings.Repeat(line, (maxHead-37)/8), strings.Repeat(line, maxTail/8-1),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pump := &stderrPump{}
			for _, chunk := range test.chunks {
				pump.remember([]byte(chunk))
			}
			head, tail := pump.ends()
			if diff := cmp.Diff([]string{test.head, test.tail}, []string{head, tail}); diff != "" {
				t.Errorf("ends (-want +got):\n%s", diff)
			}
			if cap(pump.last) > 4*maxTail || cap(pump.first) > 2*maxHead {
				t.Errorf("%d and %d bytes are held", cap(pump.first), cap(pump.last))
			}
		})
	}
}

func slicesOf(text string, count int) []string {
	all := make([]string, count)
	for i := range all {
		all[i] = text
	}
	return all
}

func TestSinkThatIsStuck(t *testing.T) {
	writing, release := make(chan struct{}, 1), make(chan struct{})
	s := newSink(writerFunc(func(p []byte) (int, error) {
		select {
		case writing <- struct{}{}:
		default: // it is known
		}
		<-release
		return len(p), nil
	}))
	line := bytes.Repeat([]byte("x"), 1<<10)
	s.line("", line)
	<-writing // from now on nothing is taken off the queue
	for range 4 * maxQueued / len(line) {
		s.line("", line)
	}
	s.mu.Lock()
	queued, dropped := len(s.queue), s.dropped
	s.mu.Unlock()
	if queued > maxQueued || dropped == 0 {
		t.Errorf("%d bytes queued, %d lines dropped", queued, dropped)
	}
	s.close(time.Millisecond) // gives up
	close(release)
	<-s.idle
}

// A process that left the group keeps the pipe open, so that standard error has no end. The
// launcher still gets what the dead process wrote, however late its reader runs.
func TestLastWordsAreHeard(t *testing.T) {
	for name, words := range map[string]string{"few": "cannot open /data\n", "all that a pipe holds": strings.Repeat("0123456\n", 8<<10), "none": ""} {
		t.Run(name, func(t *testing.T) {
			var fds [2]int
			if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
				t.Fatal(err)
			}
			if _, err := syscall.Write(fds[1], []byte(words)); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				log := &safeBuffer{}
				sink := newSink(log)
				c := &child{stderr: newStderrPump(fds[0], "l", sink), exited: newExitEvent()}
				go c.finish(Exit{Code: 3})
				time.Sleep(time.Hour)
				synctest.Wait()
				select {
				case <-c.exited.done:
					t.Errorf("the end was told before its last words were read: %+v", c.exited.exit)
				default:
				}
				go c.stderr.run()
				<-c.exited.done
				if got, want := c.exited.exit.Stderr, words[max(len(words)-maxTail, 0):]; !strings.HasSuffix(want, got) || len(want)-len(got) > 8 {
					t.Errorf("standard error: %d bytes, %.80q, want %.80q", len(got), got, want)
				}
				// The one that has it open is still heard.
				if _, err := syscall.Write(fds[1], []byte("later\n")); err != nil {
					t.Error(err)
				}
				if err := syscall.Close(fds[1]); err != nil {
					t.Error(err)
				}
				<-c.stderr.done
				sink.close(time.Hour)
				if !strings.HasSuffix(log.String(), "[l] later\n") {
					t.Errorf("the log ends with %q", log.String()[max(len(log.String())-80, 0):])
				}
			})
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestParseStat(t *testing.T) {
	tests := map[string]struct {
		text string
		want procStat
		ok   bool
	}{
		"plain":                 {"7 (cat) S 3 5 5 0 -1 4194304 0 0 0 0 1 2 0 0 20 0 1 0 99", procStat{7, 3, 5, false, false}, true},
		"zombie":                {"7 (cat) Z 3 5 5 0 -1 4194308 0 0 0 0 1 2 0 0 20 0 1 0 99", procStat{7, 3, 5, true, false}, true},
		"in the middle of exit": {"7 (cat) R 3 5 5 0 -1 4194308 0 0 0 0 1 2 0 0 20 0 1 0 99", procStat{7, 3, 5, false, true}, true},
		"first thread dead":     {"7 (cat) Z 3 5 5 0 -1 4194308 0 0 0 0 1 2 0 0 20 0 2 0 99", procStat{7, 3, 5, false, true}, true},
		"hostile name":          {"7 (a) Z 1 1 () R 3 5 5 0 -1 4194304 0 0 0 0 1 2 0 0 20 0 1 0 99", procStat{7, 3, 5, false, false}, true},
		"short":                 {"7 (cat) S 3 5", procStat{}, false},
		"no number":             {"7 (cat) S 3 5 5 0 -1 x 0 0 0 0 1 2 0 0 20 0 1 0 99", procStat{}, false},
		"empty":                 {"", procStat{}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := parseStat(7, test.text)
			if got != test.want || ok != test.ok {
				t.Errorf("%+v, %v; want %+v, %v", got, ok, test.want, test.ok)
			}
		})
	}
}

func TestCleanLabel(t *testing.T) {
	tests := map[string]string{
		"session-1":              "session-1",
		"a b]\n\x1b[0m":          "a_b___[0m",
		"größe":                  "gr__e",
		strings.Repeat("é", 100): strings.Repeat("_", maxLabel),
		"":                       "",
	}
	for label, want := range tests {
		if got := cleanLabel(label); got != want {
			t.Errorf("cleanLabel(%q) = %q, want %q", label, got, want)
		}
	}
}

func TestFrameLimits(t *testing.T) {
	worst := message{Kind: kindExit, Exit: newEnded(Exit{StderrHead: strings.Repeat("\x00", maxHead), Stderr: strings.Repeat("\x00", maxTail)})}
	if _, err := encodeFrame(worst); err != nil {
		t.Errorf("the worst exit does not fit: %v", err)
	}
	if _, err := encodeFrame(message{Kind: kindFailed, Text: strings.Repeat("x", maxFrame)}); err == nil {
		t.Error("a frame that is too large was made")
	}
}

// An adapter and a launcher of different releases understand each other: an older launcher
// sends only the tail.
func TestExitTravels(t *testing.T) {
	exit := Exit{Code: 3, StderrHead: "first\n", Stderr: "last\n"}
	if got := newEnded(exit).exit(); got != exit {
		t.Errorf("%+v arrives as %+v", exit, got)
	}
	older := `{"kind":"exit","exit":{"code":3,"stderr":"last\n"}}`
	header := [headerBytes]byte{headerBytes - 1: byte(len(older))}
	m, err := readBody(strings.NewReader(older), header)
	if want := (Exit{Code: 3, Stderr: "last\n"}); err != nil || m.Exit == nil || m.Exit.exit() != want {
		t.Errorf("older launcher: %+v, %v", m, err)
	}
}

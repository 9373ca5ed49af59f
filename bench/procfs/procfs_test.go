package procfs

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/test/hang"
)

func TestParseProcess(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want Process
		fail bool
	}{
		"plain":   {text: "42 (node) S 7 42 42 0 -1 4194304 900 0 0 0 11 12 13 14 20 0 11 0 777 1000 200\n", want: Process{PID: 42, Parent: 7, Threads: 11, Started: 777, Reaped: 270 * time.Millisecond}},
		"name":    {text: "42 (a) b (c) S) Z 7 42 42 0 -1 4194304 900 0 0 0 11 12 0 0 20 0 1 0 778 1000 200\n", want: Process{PID: 42, Parent: 7, Zombie: true, Threads: 1, Started: 778}},
		"short":   {text: "42 (node) S 7", fail: true},
		"no name": {text: "42 node S 7", fail: true},
		"words":   {text: "42 (node) S seven 42 42 0 -1 4194304 900 0 0 0 11 12 13 14 20 0 11 0 777", fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseProcess([]byte(test.text))
			if (err != nil) != test.fail {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseMemory(t *testing.T) {
	text := "00400000-7ffc0000 ---p 00000000 00:00 0    [rollup]\nRss:  2000 kB\nPss:  1500 kB\nPss_Dirty:  1 kB\nPrivate_Clean: 100 kB\nPrivate_Dirty: 1200 kB\n"
	got, err := parseMemory([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Memory{2000 << 10, 1500 << 10, 1300 << 10}, got); diff != "" {
		t.Error(diff)
	}
	for name, text := range map[string]string{"nothing": "", "no number": "Rss: many kB\n"} {
		if _, err := parseMemory([]byte(text)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestParsePeak(t *testing.T) {
	got, err := parsePeak([]byte("Name:\tnode\nVmPeak:\t  900000 kB\nVmHWM:\t   51324 kB\nVmRSS:\t   40000 kB\n"))
	if want := int64(51324 << 10); err != nil || got != want {
		t.Errorf("the peak is %d, %v; want %d", got, err, want)
	}
	for name, text := range map[string]string{"nothing": "", "no number": "VmHWM: many kB\n"} {
		if _, err := parsePeak([]byte(text)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestParseCPUTimes(t *testing.T) {
	got, err := parseCPUTimes([]byte("cpu  100 20 30 4000 500 6 7 8 90 10\ncpu0 1 2 3\n"))
	if want := (CPUTimes{Busy: 171 * tick, Stolen: 8 * tick}); err != nil || got != want {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for name, text := range map[string]string{"nothing": "", "short": "cpu 1 2\n", "words": "cpu a b c d e f g h i j\n"} {
		if _, err := parseCPUTimes([]byte(text)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// The real thing, on ourselves.
func TestOurselves(t *testing.T) {
	before, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine no time of the clock is enough to be given a processor.
	for deadline := time.Now().Add(hang.Guard); ; {
		after, err := CPU(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if after > before {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("CPU time stays at %s", after)
		}
	}
	if m, err := ReadMemory(os.Getpid()); err != nil || m.Resident < 1<<20 || m.Share > m.Resident || m.Private > m.Share {
		t.Errorf("memory is %+v, %v", m, err)
	}
	if self, err := ReadProcess(os.Getpid()); err != nil || self.Parent != os.Getppid() || self.Threads < 1 {
		t.Errorf("read %+v, %v", self, err)
	}
	if _, err := ReadCPUTimes(); err != nil {
		t.Error(err)
	}
}

func TestDescendants(t *testing.T) {
	command := exec.CommandContext(t.Context(), "sh", "-c", "sleep 100 & echo; wait")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = command.Wait() }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	below, err := Descendants(command.Process.Pid)
	if err != nil || len(below) != 1 || below[0].Parent != command.Process.Pid {
		t.Errorf("below are %+v, %v", below, err)
	}
	for _, process := range below {
		if p, err := os.FindProcess(process.PID); err == nil {
			_ = p.Kill()
		}
	}
}

//go:build hostile

package hostile

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
	"github.com/slipway-mcp/slipway/test/priority"
)

// What an attacker is told by its environment.
const (
	attackVariable  = "SLIPWAY_HOSTILE_ATTACK"
	addressVariable = "SLIPWAY_HOSTILE_ADDRESS"
)

// underWay is the line by which an attacker says that the adapter feels it.
const underWay = "under way"

// report is what an attacker says at its end.
type report struct {
	Made  int            `json:"made"`
	Got   map[string]int `json:"got"`   // what the adapter did, and how often
	Wrong []string       `json:"wrong"` // what the adapter must not do, or what else failed
}

func (r *report) add(other report) {
	r.Made += other.Made
	for what, count := range other.Got {
		r.Got[what] += count
	}
}

// describe is for people.
func (r *report) describe(makes string) string {
	parts := []string{fmt.Sprintf("for %d %s:", r.Made, makes)}
	for _, what := range slices.Sorted(maps.Keys(r.Got)) {
		parts = append(parts, fmt.Sprintf("%d %s,", r.Got[what], what))
	}
	return strings.TrimRight(strings.Join(parts, " "), ",:")
}

// remote is an attacker as the test sees it: a process of its own, which leaves the CPU to
// others. What the users feel is what the adapter does, and not who has the CPU.
type remote struct {
	command *exec.Cmd
	stdin   io.Closer
	lines   chan string
}

// begin starts an attacker, and returns when its attack is under way.
func (a *attack) begin(t *testing.T, address string) *remote {
	t.Helper()
	r := &remote{command: exec.Command("/proc/self/exe"), lines: make(chan string, 2)}
	r.command.Env = append(os.Environ(), attackVariable+"="+a.name, addressVariable+"="+address)
	r.command.Stderr = os.Stderr
	stdin, err := r.command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.stdin = stdin
	stdout, err := r.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error)
	go func() {
		err := priority.Lowest()
		if err == nil {
			err = r.command.Start()
		}
		started <- err
	}()
	if err := <-started; err != nil {
		t.Fatalf("start attacker: %v", err)
	}
	t.Cleanup(func() { _ = r.command.Process.Kill() }) // for tests that fail; else it has ended
	go func() {
		defer close(r.lines)
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			r.lines <- lines.Text()
		}
	}()
	if line := r.listen(t); line != underWay {
		t.Fatalf("the attacker says %q, and not that it is under way", line)
	}
	return r
}

func (r *remote) listen(t *testing.T) string {
	t.Helper()
	select {
	case line := <-r.lines:
		return line
	case <-time.After(hang.Guard):
		t.Fatal("the attacker says nothing")
	}
	return ""
}

// end tells an attacker to stop, and returns what it says.
func (r *remote) end(t *testing.T) (got report) {
	t.Helper()
	select {
	case line := <-r.lines:
		t.Fatalf("the attacker ended before it was told to: %s", line)
	default:
	}
	if err := r.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	line := r.listen(t)
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Fatalf("the attacker says %q, which is no report", line)
	}
	if err := r.command.Wait(); err != nil {
		t.Fatalf("the attacker fails: %v", err)
	}
	return got
}

// attacker is an attacker as it sees itself.
type attacker struct {
	context.Context // until it is told to stop
	address         string
	begun           func() // says that the adapter feels the attack

	mu     sync.Mutex
	report report
}

// attackByName is the attacker's program. It returns the exit code.
func attackByName(name string) int {
	i := slices.IndexFunc(attacks, func(a attack) bool { return a.name == name })
	ctx, stop := context.WithTimeout(context.Background(), hang.Guard)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	a := &attacker{Context: ctx, address: os.Getenv(addressVariable), report: report{Got: map[string]int{}}}
	a.begun = sync.OnceFunc(func() { fmt.Println(underWay) })
	if err := attacks[i].run(a); err != nil {
		a.wrong("%v", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	text, err := json.Marshal(a.report)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(string(text))
	return 0
}

// pace calls make so often a second until the attacker is told to stop, and until there are
// size things that it made. How many requests a second the adapter can take is not what these
// attacks are about.
func (a *attacker) pace(rate, size int, make func() error) error {
	for next := time.Now(); !a.stopped() || a.made(0) < size; next = next.Add(time.Second / time.Duration(rate)) {
		time.Sleep(time.Until(next))
		if err := make(); err != nil {
			return err
		}
		a.made(1)
	}
	return nil
}

// spin takes the CPU of an attacker, and leaves the adapter alone.
func spin(a *attacker) error {
	a.begun()
	for !a.stopped() { // it looks without a pause
	}
	return nil
}

func (a *attacker) stopped() bool { return a.Err() != nil }

// made counts what the attacker makes, and returns how many there are.
func (a *attacker) made(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.report.Made += n
	return a.report.Made
}

// got counts what the adapter does.
func (a *attacker) got(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.report.Got[what]++
}

// wrong notes what must not happen. A few are enough.
func (a *attacker) wrong(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.report.Wrong) < 10 {
		a.report.Wrong = append(a.report.Wrong, fmt.Sprintf(format, args...))
	}
}

// refused is the answer that tells a client when to come back.
const refused = "503 with Retry-After"

// answered counts an answer, which has to be a refusal that tells when to come back, or to
// have one of the given statuses.
func (a *attacker) answered(answer *http.Response, statuses ...int) {
	after, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	switch {
	case answer.StatusCode == http.StatusServiceUnavailable && err == nil && after > 0:
		a.got(refused)
		a.begun()
	case slices.Contains(statuses, answer.StatusCode):
		a.got(strconv.Itoa(answer.StatusCode))
	default:
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 300))
		a.wrong("status %s, Retry-After %q: %s", answer.Status, answer.Header.Get("Retry-After"), text)
	}
}

package docs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Shell is one session of bash, in which the steps of a page run one after the other, so that a later step has the
// variables and the directory of the earlier ones.
type Shell struct {
	scratch string
	command *exec.Cmd
	orders  *os.File    // the session reads the number of the next step from here
	reports chan string // "done STEP", or "fail STEP LINE"
	steps   []Step
}

// session runs steps. The first command that fails ends it, and its line in the step is reported.
const session = `set -eE -o pipefail
trap 'echo "fail $STEP $LINENO" >&3' ERR
while read -r STEP HOW <&4; do
  if [[ $HOW == background ]]; then
    . "$SCRATCH/$STEP.sh" </dev/null >"$SCRATCH/$STEP.out" 2>&1 &
  else
    . "$SCRATCH/$STEP.sh" </dev/null >"$SCRATCH/$STEP.out" 2>&1
  fi
  echo "done $STEP" >&3
done
`

// StartShell begins a session in a directory. Scripts and their output go to the scratch directory. Close ends it.
func StartShell(ctx context.Context, dir, scratch string, env []string) (*Shell, error) {
	ordersOut, ordersIn, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start shell: %w", err)
	}
	reportsOut, reportsIn, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start shell: %w", errors.Join(err, ordersOut.Close(), ordersIn.Close()))
	}
	command := exec.CommandContext(ctx, "bash", "-c", session)
	command.Dir = dir
	command.Env = slices.Concat(env, []string{"SCRATCH=" + scratch})
	command.ExtraFiles = []*os.File{reportsIn, ordersOut}
	// What runs in the background ends with the session.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	err = command.Start()
	_ = reportsIn.Close()
	_ = ordersOut.Close()
	if err != nil {
		return nil, fmt.Errorf("start shell: %w", errors.Join(err, ordersIn.Close(), reportsOut.Close()))
	}
	s := &Shell{scratch: scratch, command: command, orders: ordersIn, reports: make(chan string)}
	go s.listen(reportsOut)
	return s, nil
}

func (s *Shell) listen(from io.ReadCloser) {
	defer close(s.reports)
	defer func() { _ = from.Close() }()
	for lines := bufio.NewScanner(from); lines.Scan(); {
		s.reports <- lines.Text()
	}
}

// Run runs a step and returns what it printed. A failure of the step, or of one in the background, names the line of the page.
func (s *Shell) Run(ctx context.Context, page string, step Step) (output string, err error) {
	number := len(s.steps)
	s.steps = append(s.steps, step)
	if err := os.WriteFile(s.file(number, "sh"), []byte(step.Script+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("%s:%d: write script: %w", page, step.Line, err)
	}
	order := strconv.Itoa(number) + " front\n"
	if step.Background {
		order = strconv.Itoa(number) + " background\n"
	}
	if _, err := s.orders.WriteString(order); err != nil {
		return "", fmt.Errorf("%s:%d: the shell has ended: %w", page, step.Line, err)
	}
	select {
	case report := <-s.reports:
		output := s.output(number)
		if report == "done "+strconv.Itoa(number) {
			if step.Want != "" && !Match(step.Want, output) {
				return output, fmt.Errorf("%s:%d: %s: the output is not what the page shows:\n%s\nthe page shows:\n%s", page, step.Line, step.Script, output, step.Want)
			}
			return output, nil
		}
		return output, s.failure(page, step, report)
	case <-ctx.Done():
		return s.output(number), fmt.Errorf("%s:%d: %s: it does not end: %w:\n%s", page, step.Line, step.Script, context.Cause(ctx), s.output(number))
	}
}

// failure says which command of which step has failed.
func (s *Shell) failure(page string, step Step, report string) error {
	var number, line int
	if _, err := fmt.Sscanf(report, "fail %d %d", &number, &line); err != nil || number >= len(s.steps) {
		return fmt.Errorf("%s:%d: %s: the shell has ended (%q):\n%s", page, step.Line, step.Script, report, s.output(len(s.steps)-1))
	}
	failed := s.steps[number]
	lines := strings.Split(failed.Script, "\n")
	text := lines[min(max(line, 1), len(lines))-1]
	return fmt.Errorf("%s:%d: this fails: %s\n%s", page, failed.Line+max(line, 1)-1, strings.TrimSpace(text), s.output(number))
}

// closePatience is how long programs in the background have to end by themselves.
const closePatience = 30 * time.Second

// Close ends the session with all that runs in the background.
func (s *Shell) Close() error {
	// The order matters: without the end of its orders, a session would report its own end as a failure.
	_ = s.orders.Close()
	killed := syscall.Kill(-s.command.Process.Pid, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		for range s.reports { // until every process has ended that has the pipe
			continue
		}
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closePatience):
		_ = syscall.Kill(-s.command.Process.Pid, syscall.SIGKILL)
	}
	_ = s.command.Wait() // it was killed
	if errors.Is(killed, syscall.ESRCH) {
		return nil
	}
	return killed
}

func (s *Shell) file(step int, extension string) string {
	return filepath.Join(s.scratch, strconv.Itoa(step)+"."+extension)
}

func (s *Shell) output(step int) string {
	text, err := os.ReadFile(s.file(step, "out"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

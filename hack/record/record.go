package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// span is how long a row of the picture shows. It shows to the end if until is 0.
type span struct {
	from, until time.Duration
}

// line is a row of the picture.
type line struct {
	span

	number int // of the row, from the top
	cells  []cell
	prompt int           // characters that the terminal writes before those that the user types
	typing time.Duration // how long the user types; 0 for output
}

// recording is a session, in the time of the picture.
type recording struct {
	lines    []line
	rows     int
	duration time.Duration
}

// The time of a picture: typing is made up, and pauses of the output are shortened. Both have few values, so
// that recordings of the same output are the same.
const (
	perCharacter = 40 * time.Millisecond
	mostTyping   = 2 * time.Second
	beforeOutput = 300 * time.Millisecond
	perRow       = 80 * time.Millisecond // that is read
	mostReading  = 1500 * time.Millisecond
	betweenSteps = 600 * time.Millisecond

	// What is written within together shows at once.
	together = 150 * time.Millisecond
	// A longer pause of the output is shown as a longPause, any other as a shortPause.
	isLongPause = 2 * time.Second
	shortPause  = 300 * time.Millisecond
	longPause   = 900 * time.Millisecond
)

// recorder runs the steps of a script.
type recorder struct {
	*script
	recording

	directory string
	timeout   time.Duration // of one command
	found     map[int]bool  // redactions that found something, by their line
	ending    []func() error
}

// record runs a script. It fails as soon as a command does not do what the script says.
func record(ctx context.Context, s *script, directory string, timeout time.Duration, warn io.Writer) (_ *recording, err error) {
	r := &recorder{script: s, directory: directory, timeout: timeout, found: map[int]bool{}}
	defer func() {
		for _, end := range slices.Backward(r.ending) {
			err = errors.Join(err, end())
		}
	}()
	for _, step := range s.steps {
		if err := r.run(ctx, step); err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", step.line, step.text, err)
		}
	}
	if r.rows > s.room {
		return nil, fmt.Errorf("the session has %d rows, and the picture has room for %d: change size, or fold the output of a command", r.rows, s.room)
	}
	for _, redaction := range s.redactions {
		if !r.found[redaction.line] {
			_, _ = fmt.Fprintf(warn, "record: warning: line %d: nothing matches %s\n", redaction.line, redaction.pattern)
		}
	}
	return &r.recording, nil
}

func (r *recorder) run(ctx context.Context, step step) error {
	switch step.kind {
	case stepComment:
		r.typed("# "+step.text, style{dim: true})
		return nil
	case stepHidden:
		return r.hidden(ctx, step.text)
	case stepUntil:
		return r.until(ctx, step.text)
	case stepBackground:
		return r.background(ctx, step.text)
	default:
		return r.shown(ctx, step)
	}
}

func (r *recorder) command(ctx context.Context, text string) *exec.Cmd {
	command := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", text)
	command.Dir = r.directory
	command.Env = append(os.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8", "PAGER=cat", "NO_COLOR=")
	return command
}

func (r *recorder) hidden(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	command := r.command(ctx, text)
	inGroup(command)
	command.Cancel = func() error { return endGroup(command) } // what it has started would keep its output open
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, bytes.TrimSpace(output))
	}
	return nil
}

// between is how long until waits after a failure.
const between = 200 * time.Millisecond

func (r *recorder) until(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	for last := error(nil); ; {
		err := r.hidden(ctx, text)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err // and not that it was cut off
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it did not succeed in %s: %w", r.timeout, last)
		case <-time.After(between):
		}
	}
}

// background runs a command beside the others. It has to be there to the end of the recording.
func (r *recorder) background(ctx context.Context, text string) error {
	command := r.command(ctx, text)
	inGroup(command)
	command.Cancel = func() error { return endGroup(command) }
	command.WaitDelay = time.Second
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		return fmt.Errorf("start it: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- command.Wait() }()
	r.ending = append(r.ending, func() error {
		select {
		case err := <-done:
			return fmt.Errorf("%s: it ended before the recording: %w\n%s", text, errors.Join(err, endGroup(command)), bytes.TrimSpace(output.Bytes()))
		default:
		}
		err := endGroup(command)
		<-done
		return err
	})
	return nil
}

// typed shows what the user types.
func (r *recorder) typed(text string, look style) {
	const prompt = "$ "
	cells := make([]cell, 0, len(prompt)+len(text))
	for _, char := range prompt {
		cells = append(cells, cell{char, style{}})
	}
	for _, char := range text {
		cells = append(cells, cell{char, look})
	}
	length := len([]rune(text))
	takes := min(time.Duration(length)*perCharacter, mostTyping)
	before := len(prompt)
	for _, row := range wrap(cells, r.columns) {
		typing := takes * time.Duration(len(row.cells)-before) / time.Duration(max(1, length))
		r.lines = append(r.lines, line{span: span{from: r.duration}, number: r.rows, cells: row.cells, prompt: before, typing: typing})
		r.rows++
		r.duration += typing
		before = 0
	}
	r.duration += beforeOutput
}

// shown types a command, runs it on a terminal, and shows its output.
func (r *recorder) shown(ctx context.Context, step step) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	r.typed(step.text, style{bold: true})
	screen := newScreen(r.columns)
	var frames []frame
	code, err := r.watch(ctx, step.text, func(chunk []byte, pause time.Duration) error {
		if len(frames) == 0 || pause > together {
			frames = append(frames, frame{pause: pause})
		}
		err := screen.write(chunk)
		frames[len(frames)-1].rows = r.picture(screen, step)
		return err
	})
	if err := errors.Join(err, ctx.Err(), screen.flush()); err != nil {
		return fmt.Errorf("%w\n%s", err, text(screen.shown()))
	}
	if code != step.exit {
		return fmt.Errorf("exit code %d, want %d:\n%s", code, step.exit, text(screen.shown()))
	}
	if step.head+step.tail > 0 && len(frames) > 1 { // what moves through a fold is not for readers
		frames = frames[len(frames)-1:]
	}
	r.output(frames)
	return nil
}

// watch runs a command on a terminal and passes on what it writes, with the pause before.
func (r *recorder) watch(ctx context.Context, text string, write func([]byte, time.Duration) error) (code int, err error) {
	ours, theirs, err := openTerminal(r.columns, r.room)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, ours.Close()) }()
	command := r.command(ctx, text)
	command.Stdin, command.Stdout, command.Stderr = theirs, theirs, theirs
	onTerminal(command)
	command.Cancel = func() error { return endGroup(command) } // its session is a group, too
	err = command.Start()
	if err := errors.Join(err, theirs.Close()); err != nil {
		return 0, fmt.Errorf("start it: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	// The command leads the terminal's session: when it ends, the kernel hangs up, also if it left a process there.
	failed := copyOutput(ours, write)
	if failed != nil {
		failed = errors.Join(failed, endGroup(command))
	}
	err = <-ended
	if exit, isExit := errors.AsType[*exec.ExitError](err); isExit && exit.Exited() {
		return exit.ExitCode(), failed
	}
	return 0, errors.Join(failed, err)
}

func copyOutput(terminal io.Reader, write func([]byte, time.Duration) error) error {
	buffer := make([]byte, 32<<10)
	for last := time.Now(); ; {
		n, err := terminal.Read(buffer)
		if n > 0 {
			now := time.Now()
			if err := write(buffer[:n], now.Sub(last)); err != nil {
				return err
			}
			last = now
		}
		switch {
		case errors.Is(err, io.EOF), isHungUp(err):
			return nil
		case err != nil:
			return fmt.Errorf("read terminal: %w", err)
		}
	}
}

// frame is what a command's output looked like after a pause.
type frame struct {
	pause time.Duration
	rows  []row
}

// picture is the screen as it is shown.
func (r *recorder) picture(screen *screen, step step) (rows []row) {
	all := lines(screen.shown())
	for i := range all {
		all[i] = redact(all[i], r.redactions, r.found)
	}
	for _, line := range fold(all, step.head, step.tail) {
		rows = append(rows, wrap(line, r.columns)...)
	}
	return rows
}

// output shows frames one after the other.
func (r *recorder) output(frames []frame) {
	top, rows := r.rows, 0
	var shown []int // the line of each row of the output
	for i, frame := range frames {
		switch {
		case frame.pause >= isLongPause:
			r.duration += longPause
		case i > 0:
			r.duration += shortPause
		}
		for number, row := range frame.rows {
			if number < len(shown) && slices.Equal(r.lines[shown[number]].cells, row.cells) {
				continue
			}
			r.lines = append(r.lines, line{span: span{from: r.duration}, number: top + number, cells: row.cells})
			if number < len(shown) {
				r.lines[shown[number]].until = r.duration
				shown[number] = len(r.lines) - 1
			} else {
				shown = append(shown, len(r.lines)-1)
			}
		}
		for _, gone := range shown[min(len(frame.rows), len(shown)):] { // an erased last line
			r.lines[gone].until = r.duration
		}
		shown, rows = shown[:min(len(frame.rows), len(shown))], len(frame.rows)
	}
	r.rows += rows
	r.duration += betweenSteps + min(time.Duration(rows)*perRow, mostReading)
}

func text(rows []row) string {
	var all strings.Builder
	for _, line := range lines(rows) {
		all.WriteString(strings.TrimRight(chars(line), " ") + "\n")
	}
	return strings.TrimSpace(all.String())
}

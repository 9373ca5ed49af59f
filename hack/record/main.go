// Command record makes pictures of terminal sessions: it runs the commands of a script on a terminal of a
// fixed size, and writes what they print as an animated SVG beside the script. With -check it compares that
// with the picture that is there, and writes nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"
)

const scriptExtension = ".term"

type options struct {
	check     bool
	directory string // in which commands run
	timeout   time.Duration
}

func main() {
	var opts options
	flag.BoolVar(&opts.check, "check", false, "compare the pictures that are there with what the commands print now, and write nothing")
	flag.StringVar(&opts.directory, "dir", ".", "the `directory` that commands run in")
	flag.DurationVar(&opts.timeout, "timeout", 2*time.Minute, "the longest `time` that a command may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, opts, flag.Args(), os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

// run records every script, also behind one that fails.
func run(ctx context.Context, opts options, scripts []string, stdout, stderr io.Writer) error {
	if len(scripts) == 0 {
		return errors.New("name the scripts to record")
	}
	var failed []error
	for _, path := range scripts {
		if err := one(ctx, opts, path, stdout, stderr); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", path, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

func one(ctx context.Context, opts options, path string, stdout, stderr io.Writer) error {
	name, isScript := strings.CutSuffix(path, scriptExtension)
	if !isScript {
		return fmt.Errorf("a script's name ends in %s", scriptExtension)
	}
	s, err := readScript(path)
	if err != nil {
		return err
	}
	recording, err := record(ctx, s, opts.directory, opts.timeout, stderr)
	if err != nil {
		return err
	}
	picture, err := draw(s, recording)
	if err != nil {
		return err
	}
	if opts.check {
		err = compare(name+".svg", picture)
	} else {
		err = write(name+".svg", picture)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s.svg: %d commands, %d rows, %s, %d bytes\n", name, len(s.commands()), recording.rows, recording.duration.Round(100*time.Millisecond), len(picture))
	return err
}

// compare compares the text of the picture that is there with that of a new one.
func compare(path string, picture []byte) error {
	there, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return errors.New("there is no picture yet: record it with make pictures")
	}
	if err != nil {
		return fmt.Errorf("read picture: %w", err)
	}
	want, err := shownText(there)
	if err != nil {
		return err
	}
	got, err := shownText(picture)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(normal(want), normal(got)); diff != "" {
		return fmt.Errorf("the commands print something else now (-picture +now): look whether that is right, and record it with make pictures\n%s", diff)
	}
	return nil
}

// write replaces a picture as a whole.
func write(path string, picture []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".record-*")
	if err != nil {
		return fmt.Errorf("write picture: %w", err)
	}
	_, err = file.Write(picture)
	err = errors.Join(err, file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write picture: %w", errors.Join(err, os.Remove(file.Name())))
	}
	return nil
}

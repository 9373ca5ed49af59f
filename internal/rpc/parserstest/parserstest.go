// Package parserstest asks the JSON parsers of other implementations what they read, for tests that compare them.
package parserstest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Ask says what a parser reads out of a text: values by their names. The word tells the parser what to read.
type Ask func(word string, text []byte) (map[string]string, error)

// Start starts the parsers, for as long as the test runs. The programs are in testdata of package rpc, whose path
// differs between tests. Node is nil where there is no node; a machine that runs all tests has it.
func Start(tb testing.TB, programs string, nodeArgs ...string) (segmentio, node Ask) {
	tb.Helper()
	compiled := filepath.Join(tb.TempDir(), "segmentio")
	build := exec.CommandContext(tb.Context(), "go", "build", "-o", compiled, ".")
	build.Dir = filepath.Join(programs, "segmentio")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("build the parser of segmentio: %v\n%s", err, out)
	}
	segmentio = start(tb, compiled)
	program, err := exec.LookPath("node")
	if err != nil {
		tb.Logf("JSON.parse is not compared: %v", err)
		return segmentio, nil
	}
	return segmentio, start(tb, program, append([]string{filepath.Join(programs, "parse.js")}, nodeArgs...)...)
}

// start starts a process that says what it reads.
func start(tb testing.TB, program string, args ...string) Ask {
	tb.Helper()
	// The process ends when its input does, and not with the test's context, which ends before.
	command := exec.CommandContext(context.WithoutCancel(tb.Context()), program, args...)
	var said strings.Builder
	command.Stderr = &said
	in, err := command.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := command.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(in.Close(), command.Wait()); err != nil {
			tb.Errorf("%s ends with %v: %s", program, err, said.String())
		}
	})
	return func(word string, text []byte) (map[string]string, error) {
		question := binary.BigEndian.AppendUint32(nil, uint32(len(word)+len(text))) //nolint:gosec // texts of tests are short
		if _, err := in.Write(append(append(question, word...), text...)); err != nil {
			return nil, err
		}
		var size [4]byte
		if _, err := io.ReadFull(out, size[:]); err != nil {
			return nil, err
		}
		answer := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(out, answer); err != nil {
			return nil, err
		}
		return readAnswer(answer)
	}
}

func readAnswer(answer []byte) (read map[string]string, err error) {
	if err := json.Unmarshal(answer, &read); err != nil {
		return nil, err
	}
	if failure, ok := read["failure"]; ok {
		return nil, errors.New(failure)
	}
	return read, nil
}

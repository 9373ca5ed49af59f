package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// poll is how often a condition without a notification is looked at.
const poll = 20 * time.Millisecond

// Command is a process to start.
type Command struct {
	Path string
	Args []string
	Env  []string
	Dir  string
	// Log receives standard output and error, appended.
	Log string
}

// Start starts a process in a session of its own, so that it neither ends with
// the terminal nor with the command that started it.
func Start(command Command) (Identity, error) {
	log, err := os.OpenFile(command.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return Identity{}, err
	}
	defer func() { _ = log.Close() }()                 // The child has its own descriptor.
	cmd := exec.Command(command.Path, command.Args...) //nolint:noctx // It shall outlive every context.
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = command.Env, command.Dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Identity{}, err
	}
	identity, err := Identify(cmd.Process.Pid)
	go func() { _ = cmd.Wait() }() // Reaps it; that it ended is seen by Alive.
	return identity, err
}

// Stop asks the processes to end and makes them when grace is over or the
// context ends. It returns when all are gone.
func Stop(ctx context.Context, grace time.Duration, processes ...Identity) error {
	patient, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	err := signalUntilGone(patient, syscall.SIGTERM, processes)
	if err == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	// Not ctx: an interrupted clean-up must not leave what it was about to end.
	final, cancelFinal := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancelFinal()
	return signalUntilGone(final, syscall.SIGKILL, processes)
}

func signalUntilGone(ctx context.Context, signal syscall.Signal, processes []Identity) error {
	for _, process := range processes {
		if err := process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("signal process %d: %w", process.PID, err)
		}
	}
	for {
		alive := 0
		for _, process := range processes {
			if process.Alive() {
				alive++
			}
		}
		if alive == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d processes to end after %s: %w", alive, signal, ctx.Err())
		case <-time.After(poll):
		}
	}
}

// Find returns the running processes whose command line matches.
func Find(match func(argv []string) bool) ([]Identity, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []Identity
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		content, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		if err != nil || len(content) == 0 {
			continue // Gone meanwhile, or a kernel thread.
		}
		if !match(strings.Split(strings.TrimSuffix(string(content), "\x00"), "\x00")) {
			continue
		}
		if identity, err := Identify(pid); err == nil {
			found = append(found, identity)
		}
	}
	return found, nil
}

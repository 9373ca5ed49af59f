package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/bench/load"
	"github.com/slipway-mcp/slipway/bench/procfs"
)

// startPatience is for a system to listen and to answer its first initialize.
const startPatience = 30 * time.Second

// running is a system that was started for one cell.
type running struct {
	bridge  *process // nil for the pipe
	helper  *process // the launcher, if there is one
	entry   *process // another bridge, at which clients enter; nil if that is the one with the sessions
	address string
	enterAt string  // the address of entry
	issuer  *issuer // of the tokens that it asks for; nil if it asks for none
	header  string  // one more line of every request's header; may be empty
	command string  // the server's, for the pipe
	first   *load.Remote
}

// process is a program of ours.
type process struct {
	*exec.Cmd
	ended chan struct{}
	lines chan string // of its output, until the benchmark stops reading them
}

func (t *tools) startProcess(name string, args ...string) (*process, error) {
	p := &process{Cmd: exec.Command(name, args...), ended: make(chan struct{}), lines: make(chan string, 16)} //nolint:noctx // stop ends it, and whatever it started.
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	p.Stdout, p.Stderr = writer, writer
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is for us, and we stop it
	t.demote(p.Cmd)
	err = t.start(p.Cmd)
	_ = writer.Close() // it is the process's now
	if err != nil {
		_ = reader.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.Wait() // however it ended
		close(p.ended)
	}()
	go p.drain(reader)
	return p, nil
}

func (t *tools) start(command *exec.Cmd) error {
	if t.cpus == nil {
		return command.Start()
	}
	return startOn(t.cpus, command.Start)
}

// drain reads what a process says, so that it never waits for us.
func (p *process) drain(output io.ReadCloser) {
	defer func() { _ = output.Close() }()
	defer close(p.lines)
	for lines := bufio.NewScanner(output); lines.Scan(); {
		select {
		case p.lines <- lines.Text():
		default: // the benchmark reads no more lines
		}
	}
}

// startListening starts a program that says where it listens.
func (t *tools) startListening(ctx context.Context, name string, args ...string) (*running, error) {
	p, err := t.startProcess(name, args...)
	if err != nil {
		return nil, err
	}
	r := &running{bridge: p}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	var said []string
	for {
		select {
		case line, ok := <-p.lines:
			var entry struct {
				URL string `json:"url"`
			}
			if !ok {
				r.stop()
				return nil, fmt.Errorf("start %s: it ended: %s", name, strings.Join(said, "\n"))
			}
			said = append(said, line)
			if json.Unmarshal([]byte(line), &entry) != nil || entry.URL == "" {
				continue
			}
			at, err := url.Parse(entry.URL)
			if err != nil {
				r.stop()
				return nil, fmt.Errorf("start %s: %w", name, err)
			}
			r.address = at.Host
			return r, nil
		case <-ctx.Done():
			r.stop()
			return nil, fmt.Errorf("start %s: it does not say where it listens: %s", name, strings.Join(said, "\n"))
		}
	}
}

// startAt starts a program that listens where it is told to.
func (t *tools) startAt(ctx context.Context, port int, name string, args ...string) (*running, error) {
	p, err := t.startProcess(name, args...)
	if err != nil {
		return nil, err
	}
	r := &running{bridge: p, address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	for deadline := time.Now().Add(startPatience); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.address)
		if err == nil {
			return r, conn.Close()
		}
	}
	r.stop()
	return nil, fmt.Errorf("start %s: it does not listen", name)
}

// freePort returns a port that is free now, for programs that cannot pick one themselves.
func freePort(ctx context.Context) (int, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find port: %w", err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// settle opens a first session, so that everything is there. It stays: what its end
// would leave under way is not to be measured with something else.
func (r *running) settle() (err error) {
	if r.bridge != nil {
		r.first, err = load.OpenWith(r.address, r.header)
	}
	return err
}

// open opens a session.
func (r *running) open(ctx context.Context) (load.Session, error) {
	if r.bridge == nil {
		return load.Start(ctx, r.command)
	}
	session, err := load.OpenWith(r.address, r.header)
	if err != nil || r.entry == nil {
		return session, err
	}
	return session, session.Move(r.enterAt)
}

// stopPatience is for an orderly end.
const stopPatience = 3 * time.Second

// processes are those that we started.
func (r *running) processes() []*process {
	return there(r.bridge, r.entry, r.helper)
}

// bridges are the processes that what is measured is about.
func (r *running) bridges() []*process { return there(r.bridge, r.entry) }

func there(all ...*process) []*process {
	return slices.DeleteFunc(all, func(p *process) bool { return p == nil })
}

// stop ends the system and whatever it has started, and says how many processes were
// left behind.
func (r *running) stop() (left int) {
	if r.first != nil {
		_ = r.first.Close() // the system ends
	}
	var below []procfs.Process
	for _, p := range r.processes() {
		found, err := procfs.Descendants(p.Process.Pid)
		if err == nil { // else there is nothing to wait for
			below = append(below, found...)
		}
	}
	for _, p := range r.processes() {
		p.end()
	}
	for deadline := time.Now().Add(stopPatience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if below = slices.DeleteFunc(below, hasEnded); len(below) == 0 {
			return 0
		}
	}
	for _, p := range below {
		_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may have ended at last
	}
	return len(below)
}

func hasEnded(p procfs.Process) bool {
	now, err := procfs.ReadProcess(p.PID)
	return err != nil || now.Started != p.Started || now.Zombie
}

func (p *process) end() {
	_ = p.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopPatience):
		_ = p.Process.Kill()
		<-p.ended
	}
}

// usage is what was used up to a moment.
type usage struct {
	at        time.Time
	bridge    time.Duration // CPU of the bridge alone, or of both
	all       time.Duration // and with the launcher and all servers
	generator time.Duration
	machine   procfs.CPUTimes
}

// measure asks the kernel.
func (r *running) measure() (u usage, err error) {
	u.at = time.Now()
	if u.generator, err = procfs.CPU(os.Getpid()); err != nil {
		return usage{}, err
	}
	if u.machine, err = procfs.ReadCPUTimes(); err != nil {
		return usage{}, err
	}
	if r.bridge == nil { // the servers behind a pipe are children of ours
		u.all, err = below(os.Getpid())
		return u, err
	}
	for _, p := range r.bridges() {
		own, err := procfs.CPU(p.Process.Pid)
		if err != nil {
			return usage{}, err
		}
		u.bridge += own
	}
	for _, p := range r.processes() {
		own, err := procfs.CPU(p.Process.Pid)
		if err != nil {
			return usage{}, err
		}
		servers, err := below(p.Process.Pid)
		if err != nil {
			return usage{}, err
		}
		u.all += own + servers
	}
	return u, nil
}

// below is the CPU time of a process's descendants, those that have ended among them.
func below(root int) (used time.Duration, err error) {
	self, err := procfs.ReadProcess(root)
	if err != nil {
		return 0, err
	}
	used = self.Reaped
	descendants, err := procfs.Descendants(root)
	if err != nil {
		return 0, err
	}
	for _, p := range descendants {
		one, err := procfs.CPU(p.PID)
		if err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.EINVAL) {
			return 0, err // else it has ended
		}
		used += one
	}
	return used, nil
}

package relay

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Kernel is what a kernel knows of a connection besides its bytes. A connection of Options.Dial that is no socket may
// implement it.
type Kernel interface {
	// State reports whether there is something to read, and whether no request can be sent any more because the other
	// side has closed the connection, or it has failed.
	State() (unread, over bool)
	// Acknowledged reports whether the other side's kernel has acknowledged all that was sent.
	Acknowledged() bool
}

// kernelOf returns nil for a connection of which no kernel knows.
func kernelOf(raw net.Conn) Kernel {
	if known, ok := raw.(Kernel); ok {
		return known
	}
	known, ok := raw.(syscall.Conn)
	if !ok {
		return nil
	}
	conn, err := known.SyscallConn()
	if err != nil { // it is closed
		return nil
	}
	s := &socket{conn: conn}
	s.look = func(fd uintptr) {
		s.poll[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP} //nolint:gosec // descriptors are small
		_, _ = unix.Poll(s.poll[:], 0)                                               // fails only if a signal comes
	}
	return s
}

// socket is a connection of the kernel of this machine. One goroutine uses State at a time.
type socket struct {
	conn syscall.RawConn
	poll [1]unix.PollFd
	look func(fd uintptr) // looks at the socket; made once, because it escapes
}

// State implements Kernel. It costs one system call.
func (s *socket) State() (unread, over bool) {
	s.poll[0].Revents = 0
	if err := s.conn.Control(s.look); err != nil {
		return false, true
	}
	events := s.poll[0].Revents
	return events&unix.POLLIN != 0, events&^unix.POLLIN != 0
}

// Acknowledged implements Kernel.
func (s *socket) Acknowledged() bool {
	waiting, err := 0, error(nil)
	if s.conn.Control(func(fd uintptr) { waiting, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }) != nil {
		return false
	}
	return err == nil && waiting == 0
}

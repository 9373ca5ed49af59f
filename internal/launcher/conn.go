package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	helloTimeout = 5 * time.Second // from connecting to the hello
	writeTimeout = 2 * time.Second // for the other side to read a frame
	passedFiles  = 2               // standard input and output
)

// conn is one connection of the protocol. Several goroutines may send; one receives.
type conn struct {
	*net.UnixConn
	writing sync.Mutex
}

// dial connects to the adapter.
func dial(ctx context.Context, socket string) (*conn, error) {
	var dialer net.Dialer
	opened, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	return &conn{UnixConn: opened.(*net.UnixConn)}, nil
}

// send writes one frame, with descriptors if there are any.
func (c *conn) send(m message, files ...int) error {
	frame, err := encodeFrame(m)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("send %s: %w", m.Kind, err)
	}
	if len(files) > 0 {
		// The descriptors travel with the first byte; the rest may have to follow.
		n, _, err := c.WriteMsgUnix(frame, syscall.UnixRights(files...), nil)
		if err != nil {
			return fmt.Errorf("send %s: %w", m.Kind, err)
		}
		frame = frame[n:]
	}
	if len(frame) == 0 {
		return nil
	}
	if _, err := c.Write(frame); err != nil {
		return fmt.Errorf("send %s: %w", m.Kind, err)
	}
	return nil
}

// receive reads one frame. The kernel closes descriptors that come with it, because
// receive offers no room for them.
func (c *conn) receive() (message, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(c, header[:]); err != nil {
		return message{}, err
	}
	return readBody(c, header)
}

// receiveWithin is receive with a time limit.
func (c *conn) receiveWithin(limit time.Duration) (message, error) {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return message{}, err
	}
	m, err := c.receive()
	return m, errors.Join(err, c.SetReadDeadline(time.Time{}))
}

// receiveHello reads the first frame of a connection, within its time, and the
// descriptors that come with it. It returns no descriptors with an error.
func (c *conn) receiveHello() (message, []int, error) {
	if err := c.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return message{}, nil, err
	}
	var header [headerBytes]byte
	control := make([]byte, syscall.CmsgSpace(passedFiles*4))
	n, controlBytes, flags, _, err := c.ReadMsgUnix(header[:], control)
	if err != nil {
		return message{}, nil, err
	}
	files, err := passed(control[:controlBytes])
	if err == nil && flags&syscall.MSG_CTRUNC != 0 {
		err = errors.New("too many descriptors")
	}
	var m message
	if err == nil {
		_, err = io.ReadFull(c, header[n:])
	}
	if err == nil {
		m, err = readBody(c, header)
	}
	if err == nil {
		err = c.SetReadDeadline(time.Time{})
	}
	if err != nil {
		closeAll(files)
		return message{}, nil, err
	}
	return m, files, nil
}

// passed returns the descriptors in a control message.
func passed(control []byte) ([]int, error) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return nil, fmt.Errorf("control message: %w", err)
	}
	var files []int
	for i := range messages {
		if rights, err := syscall.ParseUnixRights(&messages[i]); err == nil {
			files = append(files, rights...)
		}
	}
	return files, nil
}

// peerUID returns the user at the other end. The process has another PID namespace, so
// that its PID says nothing.
func (c *conn) peerUID() (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *syscall.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, credErr
	}
	return cred.Uid, nil
}

// pipeEnd turns a descriptor from outside into a file, if it is the end of a pipe and
// open in the wanted direction: anything else could block or lie in ways that pipes do
// not. The descriptor belongs to the file then.
func pipeEnd(fd, access int, name string) (*os.File, error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return nil, fmt.Errorf("look at %s: %w", name, err)
	}
	flags, err := statusFlags(fd)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", name, err)
	}
	if stat.Mode&syscall.S_IFMT != syscall.S_IFIFO || flags&syscall.O_ACCMODE != access {
		return nil, fmt.Errorf("%s is not the right end of a pipe", name)
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func closeAll(files []int) {
	for _, fd := range files {
		_ = syscall.Close(fd)
	}
}

package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// CheckPort returns an error that names the process in the way when nothing can
// listen at the address.
func CheckPort(ctx context.Context, address string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		return listener.Close()
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("check address %s: %w", address, err)
	}
	_, port, splitErr := net.SplitHostPort(address)
	if splitErr != nil {
		return errors.Join(err, splitErr)
	}
	return fmt.Errorf("address %s is in use by %s", address, portOwner(port))
}

// portOwner describes the process that listens on the port.
func portOwner(port string) string {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "an unknown process"
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		content, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for _, inode := range listeners(string(content), uint16(number)) {
			if owner := socketOwner(inode); owner != "" {
				return owner
			}
		}
	}
	return "a process that this user may not see"
}

// listeners returns the inodes of the sockets that listen on the port, from the
// lines of /proc/net/tcp: field 1 is the local address, 3 the state, 9 the inode.
func listeners(content string, port uint16) []string {
	const listen = "0A"
	var inodes []string
	for line := range strings.Lines(content) {
		fields := strings.Fields(line)
		if len(fields) > 9 && fields[3] == listen && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) {
			inodes = append(inodes, fields[9])
		}
	}
	return inodes
}

func socketOwner(inode string) string {
	descriptors, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return ""
	}
	for _, descriptor := range descriptors {
		if target, err := os.Readlink(descriptor); err != nil || target != "socket:["+inode+"]" {
			continue
		}
		pid := strings.Split(descriptor, "/")[2]
		name, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
		if err != nil {
			return "process " + pid
		}
		return fmt.Sprintf("process %s (%s)", pid, strings.TrimSpace(string(name)))
	}
	return ""
}

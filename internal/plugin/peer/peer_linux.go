package peer

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// IsKnown says whether IsOwn works on this system.
const IsKnown = true

// IsOwn reports whether the socket at the other end of a connection within this machine belongs to the user
// of this process. It looks the socket up in the tables of the kernel, which has no other way to tell for TCP.
func IsOwn(local, remote netip.AddrPort) bool {
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} { // a socket of IPv6 can connect to IPv4
		file, err := os.Open(table)
		if err != nil {
			continue // a kernel without IPv6 has one table only
		}
		isOwn := isIn(file, remote, local, os.Geteuid())
		_ = file.Close()
		if isOwn {
			return true
		}
	}
	return false
}

// Where a line of a table has what, counted in words.
const (
	wordLocal  = 1
	wordRemote = 2
	wordState  = 3
	wordUser   = 7
	wordInode  = 9

	established = "01"
	// noInode is that of a socket which no process has any more. Its user is unknown: the table shows 0.
	noInode = "0"
)

// isIn reports whether a table has an established socket of a user with two ends.
func isIn(table io.Reader, from, to netip.AddrPort, user int) bool {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		word := strings.Fields(lines.Text())
		if len(word) <= wordInode || word[wordState] != established || word[wordInode] == noInode {
			continue
		}
		if word[wordUser] == strconv.Itoa(user) && isAt(word[wordLocal], from) && isAt(word[wordRemote], to) {
			return true
		}
	}
	return false
}

// isAt reports whether an end of a socket, as tables write it, is an address.
func isAt(end string, address netip.AddrPort) bool {
	at, port, _ := strings.Cut(end, ":")
	if port != fmt.Sprintf("%04X", address.Port()) {
		return false
	}
	content, err := hex.DecodeString(at)
	if err != nil || len(content)%4 != 0 {
		return false
	}
	// The kernel writes words of 32 bits, each in the order of the machine.
	for word := range slices.Chunk(content, 4) {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	found, ok := netip.AddrFromSlice(content)
	return ok && found.Unmap() == address.Addr().Unmap()
}

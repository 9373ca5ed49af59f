package front

import (
	"maps"
	"net/http"
	"strings"
)

// PeerPrefix begins the names of the headers that adapters of one server send to each other. They mean nothing in
// requests of clients, and no server gets them.
const PeerPrefix = "Slipway-Peer-"

// IsHopByHop reports whether a header concerns one TCP connection only, so that no proxy passes it
// on. The name is in canonical form, and connection has the values of the Connection header that
// came with it.
func IsHopByHop(name string, connection []string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	for _, value := range connection {
		for named := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(named), name) {
				return true
			}
		}
	}
	return false
}

// RemoveHopByHop removes the headers that concern one TCP connection only.
func RemoveHopByHop(header http.Header) {
	connection := header["Connection"]
	maps.DeleteFunc(header, func(name string, _ []string) bool { return IsHopByHop(name, connection) })
}

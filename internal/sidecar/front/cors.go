package front

import (
	"net/http"
	"strings"
)

// DropCORS removes from a server's answer what it says of other origins: it was not
// told where the request comes from, and the edge has answered that.
func DropCORS(header http.Header) {
	for name := range header {
		if strings.HasPrefix(name, "Access-Control-") {
			delete(header, name)
		}
	}
}

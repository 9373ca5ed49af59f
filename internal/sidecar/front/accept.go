package front

import (
	"net/http"
	"strings"
)

// acceptUsual is what nearly all clients send, for nearly all that is asked of them.
const acceptUsual = TypeJSON + ", " + TypeEvents

// Accepts says whether the Accept headers allow every one of the types. A client
// that sends none takes anything.
func Accepts(r *http.Request, types ...string) bool {
	values := r.Header["Accept"]
	if len(values) == 0 || len(values) == 1 && values[0] == acceptUsual {
		return true
	}
	for _, want := range types {
		if !acceptsOne(values, want) {
			return false
		}
	}
	return true
}

func acceptsOne(values []string, want string) bool {
	group, _, _ := strings.Cut(want, "/")
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			mediaType, _, _ := strings.Cut(part, ";")
			switch mediaType = strings.TrimSpace(mediaType); {
			case mediaType == "*/*", strings.EqualFold(mediaType, want), strings.EqualFold(mediaType, group+"/*"):
				return true
			}
		}
	}
	return false
}

package upstream

import (
	"strings"
	"testing"
)

// An error that names no call is about the call that it answers, however it says so.
func TestErrorsWithoutAnID(t *testing.T) {
	for _, id := range []string{``, `"id":null,`, `"id":7,`} {
		got := string(errorIn(&call{id: []byte("7")}, 400, []byte(`{"jsonrpc":"2.0",`+id+`"error":{"code":-32020,"message":"mismatch"}}`)))
		if !strings.Contains(got, "-32020") {
			t.Errorf("%s becomes %s", id, got)
		}
	}
}

package plugin

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-mcp/slipway/test/hang"
)

// Another user of the machine does not get the rights of the token.
func TestLoopbackOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a program as another user")
	}
	for name, isPrivate := range map[string]bool{"with a token": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			var came int
			local, err := listen(t.Context(), toServer{http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came++ })}, 0, isPrivate)
			if err != nil {
				t.Fatal(err)
			}
			defer local.close()
			host := strings.TrimSuffix(strings.TrimPrefix(local.url, "http://"), "/mcp")
			script := `exec 3<>/dev/tcp/${1/:/\/} && printf 'POST /mcp HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n' >&3 && IFS= read -r line <&3 && echo "$line"`
			ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
			defer cancel()
			command := exec.CommandContext(ctx, "bash", "-c", script, "bash", host)
			command.Dir = "/"
			command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			out, err := command.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			isRefused := strings.Contains(string(out), " 403 ")
			if isRefused != isPrivate || (came == 0) != isPrivate {
				t.Errorf("it gets %s, and %d requests came", out, came)
			}
		})
	}
}

package sessionless

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A panic in code that all clients share ends the program, also if the caller contains panics:
// a lock that it left locked would have every client hang.
func TestPanicOfSharedCode(t *testing.T) {
	const inside = "SLIPWAY_TEST_PANIC"
	if os.Getenv(inside) != "" {
		defer func() { _ = recover() }()
		(&Call{}).Take() // of no call
		return
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	again.Env = append(os.Environ(), inside+"=1")
	output, err := again.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "nil pointer dereference") || !strings.Contains(string(output), "sessionless.(*Call).Next") {
		t.Errorf("the program ended with %v, want a panic that says where: %s", err, output)
	}
}

package rpc

import (
	"runtime"
	"strings"
	"testing"
)

// A scan decodes no long text: copies of it would be beside every budget.
func TestTextsThatAreLongAreNotDecoded(t *testing.T) {
	const size = 8 << 20
	escaped := `\u0041` + strings.Repeat("A", size)
	for name, message := range map[string]string{
		"name with an escape":    `{"jsonrpc":"2.0","id":1,"method":"x","params":{"` + escaped + `":1}}`,
		"name beyond ASCII":      `{"jsonrpc":"2.0","id":1,"method":"x","params":{"é` + strings.Repeat("A", size) + `":1}}`,
		"method with an escape":  `{"jsonrpc":"2.0","id":1,"method":"` + escaped + `"}`,
		"name of a tool":         `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + escaped + `"}}`,
		"version with an escape": `{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + escaped + `"}}}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Scan([]byte(message))
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; err == nil || allocated > 2*size { // the copy for Scan is one
			t.Errorf("%s: %v, and %d MiB are allocated", name, err, allocated>>20)
		}
	}
	for name, message := range map[string]string{
		"long plain name":      `{"jsonrpc":"2.0","id":1,"method":"x","params":{"` + strings.Repeat("A", size) + `":1}}`,
		"long argument":        `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"text":"` + escaped + `"}}}`,
		"short escaped method": `{"jsonrpc":"2.0","id":1,"method":"\u0041"}`,
	} {
		if _, err := Scan([]byte(message)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

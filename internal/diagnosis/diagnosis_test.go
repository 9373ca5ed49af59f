package diagnosis

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// The texts are what these programs really write.
const (
	nodeThrow = `/app/server.js:2
throw new Error("DATABASE_URL is not set");
^

Error: DATABASE_URL is not set
    at Object.<anonymous> (/app/server.js:2:7)
    at Module._compile (node:internal/modules/cjs/loader:1521:14)
    at Module._extensions..js (node:internal/modules/cjs/loader:1623:10)
    at Module.load (node:internal/modules/cjs/loader:1266:32)
    at Module._load (node:internal/modules/cjs/loader:1091:12)
    at Function.executeUserEntryPoint [as runMain] (node:internal/modules/run_main:164:12)
    at node:internal/main/run_main_module:28:49

Node.js v26.10.0
`
	nodeModule = `node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module '/app/nope.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at Module._load (node:internal/modules/cjs/loader:1038:27)
    at Function.executeUserEntryPoint [as runMain] (node:internal/modules/run_main:164:12)
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v26.10.0
`
	goPanic = "panic: runtime error: invalid memory address or nil pointer dereference\n" +
		"[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x4a895d]\n\n" +
		"goroutine 1 [running]:\nmain.connect(...)\n\t/src/main.go:7\nmain.main()\n\t/src/main.go:15 +0x21d\n"
	python = `Traceback (most recent call last):
  File "/app/server.py", line 4, in <module>
    main()
  File "/app/server.py", line 3, in main
    settings = {"url": os.environ["DATABASE_URL"]}
                       ~~~~~~~~~~^^^^^^^^^^^^^^^^
  File "<frozen os>", line 679, in __getitem__
KeyError: 'DATABASE_URL'
`
	java = "Exception in thread \"main\" java.lang.IllegalStateException: DATABASE_URL is not set\n" +
		"\tat T.main(T.java:3)\n" +
		"Caused by: java.lang.IllegalStateException: Connection refused\n" +
		"\tat T.connect(T.java:2)\n\tat T.main(T.java:3)\n" +
		"\tat java.base/jdk.internal.reflect.NativeMethodAccessorImpl.invoke0(Native Method)\n" +
		"\tat java.base/java.lang.reflect.Method.invoke(Method.java:569)\n\t... 7 more\n"
	rust = "thread 'main' panicked at src/main.rs:4:37:\nDATABASE_URL: NotPresent\n" +
		"note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n"
)

// usage is what the flag package prints. It is longer than what the launcher keeps.
func usage() (head, tail string) {
	var text strings.Builder
	text.WriteString("flag provided but not defined: -nope\nUsage of /server:\n")
	for i := range 100 {
		fmt.Fprintf(&text, "  -flag-%d string\n    \tthe %d-th thing that can be set, or an error if it is not\n", i, i)
	}
	all := text.String()
	head, tail = all[:2<<10], all[len(all)-4<<10:]
	return head[:strings.LastIndexByte(head, '\n')+1], tail[strings.IndexByte(tail, '\n')+1:]
}

func TestLines(t *testing.T) {
	head, tail := usage()
	log := strings.Repeat("2026-01-01T00:00:00Z INFO request served\n", 50)
	for name, test := range map[string]struct{ head, tail, want string }{
		"Node.js throws": {"", nodeThrow, "/app/server.js:2\nthrow new Error(\"DATABASE_URL is not set\");\nError: DATABASE_URL is not set"},
		"Node.js misses a module": {
			"", nodeModule, "node:internal/modules/cjs/loader:1210\n  throw err;\nError: Cannot find module '/app/nope.js'\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []",
		},
		"Go panics": {
			"", goPanic, "panic: runtime error: invalid memory address or nil pointer dereference\n[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x4a895d]",
		},
		"Go panics after a while": {
			"listening\n", log + goPanic,
			"listening\n…\n2026-01-01T00:00:00Z INFO request served\n2026-01-01T00:00:00Z INFO request served\n…\n" +
				"2026-01-01T00:00:00Z INFO request served\n2026-01-01T00:00:00Z INFO request served\n2026-01-01T00:00:00Z INFO request served\n" +
				"panic: runtime error: invalid memory address or nil pointer dereference\n[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x4a895d]",
		},
		"Go does not know a flag": {
			head, tail,
			"flag provided but not defined: -nope\nUsage of /server:\n  -flag-0 string\n…\n" +
				"    \tthe 95-th thing that can be set, or an error if it is not\n…\n" +
				"    \tthe 96-th thing that can be set, or an error if it is not\n…\n" +
				"    \tthe 97-th thing that can be set, or an error if it is not\n…\n" +
				"    \tthe 98-th thing that can be set, or an error if it is not\n…\n" +
				"    \tthe 99-th thing that can be set, or an error if it is not",
		},
		"Python":        {"", python, "KeyError: 'DATABASE_URL'"},
		"Java":          {"", java, "Exception in thread \"main\" java.lang.IllegalStateException: DATABASE_URL is not set\nCaused by: java.lang.IllegalStateException: Connection refused"},
		"Rust":          {"", rust, strings.TrimSpace(rust)},
		"one line":      {"", "no such table: users\n", "no such table: users"},
		"no newline":    {"", "no such table: users", "no such table: users"},
		"nothing":       {"", "", ""},
		"blank lines":   {"", "\n \n\t\r\n", ""},
		"only frames":   {"", "    at a (b:1)\n    at c (d:2)\n", "    at a (b:1)\n    at c (d:2)"},
		"no characters": {"", "a\xff\xfeb\n", "a\uFFFDb"},
		"a long line":   {"", strings.Repeat("é", 2000) + "END", strings.Repeat("é", 190) + "…" + strings.Repeat("é", 188) + "END"},
		"an error among noise": {
			"1\n2\n3\n4\n", "5\n6\ncannot open /data\n" + strings.Repeat("bye\n", 30) + "a\nb\nc\nd", "1\n2\n3\n…\ncannot open /data\n…\na\nb\nc\nd",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Lines(test.head, test.tail)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			// The manager chooses again, as it has to with what older adapters send.
			if again := Lines("", got); again != got {
				t.Errorf("chosen again: %q, want %q", again, got)
			}
		})
	}
}

// Whatever a process writes, what is shown of it is bounded and valid.
func FuzzLines(f *testing.F) {
	for _, text := range []string{nodeThrow, nodeModule, goPanic, python, java, rust, strings.Repeat("error: x\n", 500), strings.Repeat("y", 5000)} {
		f.Add("", text)
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, head, tail string) {
		if got := Lines(head, tail); len(got) > MostBytes || !utf8.ValidString(got) {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	})
}

package quoted

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

func source(t *testing.T) *Source {
	t.Helper()
	all, err := Read(filepath.Join(root, "internal"), filepath.Join(root, "cmd"), filepath.Join(root, "api"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The words that the page on troubleshooting quotes are words of the code.
func TestQuotedMessagesAreInTheSource(t *testing.T) {
	t.Parallel()
	messages, err := Messages(filepath.Join(root, "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	const least = 50
	if len(messages) < least {
		t.Fatalf("the page quotes %d messages, want at least %d", len(messages), least)
	}
	code := source(t)
	for _, message := range messages {
		if missing := code.Missing(message.Text); missing != "" {
			t.Errorf("%s: %q quotes %q, which the code does not write", message.Heading, message.Text, missing)
		}
	}
}

// A message with other words is noticed.
func TestWrongQuotes(t *testing.T) {
	t.Parallel()
	code := source(t)
	for name, test := range map[string]struct{ text, missing string }{
		"a literal":         {"the session was idle for too long", ""},
		"of two literals":   {"no such session, it has ended: the session was idle for too long; begin again with initialize", ""},
		"with a value":      {"the host … is not one that this server may be reached by: allowed hosts are set by spec.adapter.allowedHosts", ""},
		"one word is other": {"the session was idle for very long", "the session was idle for very long"},
		"a word more":       {"the session was idle for much too long", "the session was idle for much too long"},
		"the second part":   {"the host … is not one that this server can be reached by", " is not one that this server can be reached by"},
		"words of literals": {"the catalog cannot be read: the adapter cannot connect to port ", "the catalog cannot be read: the adapter cannot connect to port "},
		"not in the source": {"out of cheese", "out of cheese"},
		"in another order":  {"too long for idle was session the", "too long for idle was session the"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := code.Missing(test.text); got != test.missing {
				t.Errorf("missing is %q, want %q", got, test.missing)
			}
		})
	}
}

// Rows of a table are read as a reader reads them.
func TestMessages(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.md")
	text := "# A\n\n| message | do |\n|---|---|\n| `one …` or `two` | `kubectl` |\n\n## B\n\n| what | do |\n|---|---|\n| `three` | x |\n\n| message | do |\n|---|---|\n| `four` | x |\n"
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Messages(page)
	if diff := cmp.Diff([]Message{{"A", "one …"}, {"A", "two"}, {"B", "four"}}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if err := os.WriteFile(page, []byte("| message |\n|---|\n| none |\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Messages(page); err == nil {
		t.Error("a row without a message is not noticed")
	}
	if m := (Message{"", "a … b"}); !m.Matches("x a 1 2 b y") || m.Matches("a c") {
		t.Error("values are not matched")
	}
}

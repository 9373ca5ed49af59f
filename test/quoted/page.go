// Package quoted finds the messages that a page of the documentation quotes, so that tests can compare them with
// those that the code writes.
package quoted

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Ellipsis stands in a quoted message where the code puts a value.
const Ellipsis = "…"

// Message is one that a page quotes.
type Message struct {
	Heading string // of the section that has it
	Text    string
}

var (
	heading = regexp.MustCompile(`^#+ (.*)$`)
	span    = regexp.MustCompile("`([^`]+)`")
)

// Messages are those of a page: the code in the first column of each table whose first column is called message.
func Messages(page string) ([]Message, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, fmt.Errorf("read page: %w", err)
	}
	var all []Message
	section, inTable := "", false
	for number, line := range strings.Split(string(text), "\n") {
		if found := heading.FindStringSubmatch(line); found != nil {
			section = found[1]
		}
		switch {
		case strings.HasPrefix(line, "| message |"):
			inTable = true
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case inTable && !strings.HasPrefix(line, "|--"):
			cell, _, _ := strings.Cut(line[1:], " | ")
			found := span.FindAllStringSubmatch(cell, -1)
			if len(found) == 0 {
				return nil, fmt.Errorf("%s:%d: the row quotes no message", page, number+1)
			}
			for _, quote := range found {
				all = append(all, Message{section, quote[1]})
			}
		}
	}
	return all, nil
}

// Matches reports whether a text is a message, with values for its ellipses. The message may be a part of the text.
func (m Message) Matches(text string) bool {
	parts := strings.Split(m.Text, Ellipsis)
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(strings.TrimSpace(part))
	}
	return regexp.MustCompile(`(?s)` + strings.Join(parts, `.*`)).MatchString(text)
}

package main

import (
	"fmt"
	"os"
	"strings"
)

// journal is a file with a line for everything that calls did. Calls have a key that
// their client made up, so that clients may share a process, and one that was served by
// several processes finds all that was done for it.
type journal string

func (j journal) add(key, event string) error {
	file, err := os.OpenFile(string(j), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	if _, err := file.WriteString(key + " " + event + "\n"); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return file.Close()
}

func (j journal) count(key, event string) (n int, err error) {
	text, err := os.ReadFile(string(j))
	if err != nil && !os.IsNotExist(err) {
		return 0, fmt.Errorf("read journal: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if line == key+" "+event+"\n" {
			n++
		}
	}
	return n, nil
}

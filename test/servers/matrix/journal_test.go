package main

import (
	"path/filepath"
	"testing"
)

// What was done twice is counted twice, also when nothing else was done in between.
func TestJournal(t *testing.T) {
	events := journal(filepath.Join(t.TempDir(), "journal"))
	if n, err := events.count("a", "done"); n != 0 || err != nil {
		t.Errorf("without a file: %d, %v", n, err)
	}
	for _, key := range []string{"a", "a", "aa", "b"} {
		if err := events.add(key, "done"); err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range map[string]int{"a": 2, "aa": 1, "b": 1, "c": 0} {
		if n, err := events.count(key, "done"); n != want || err != nil {
			t.Errorf("%s: got %d, %v, want %d", key, n, err, want)
		}
	}
}

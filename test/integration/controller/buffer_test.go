package controller

import (
	"strings"
	"sync"
)

// buffer is written by others while tests read it.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *buffer) writeLine(line string) { _, _ = b.Write([]byte(line + "\n")) }

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

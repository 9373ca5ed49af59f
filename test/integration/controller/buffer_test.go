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

func (b *buffer) writeLine(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.WriteString(line + "\n")
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

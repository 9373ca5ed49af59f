package sse

import (
	"sync"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
)

// records are those of requests whose answers the connection has not written yet.
type records struct {
	mu   sync.Mutex
	open map[*edge.Handed]struct{}
	over bool
}

func (r *records) add(record *edge.Handed) {
	r.mu.Lock()
	over := r.over
	if !over {
		if r.open == nil {
			r.open = map[*edge.Handed]struct{}{}
		}
		r.open[record] = struct{}{}
	}
	r.mu.Unlock()
	if over {
		record.Close(edge.Cancelled)
	}
}

func (r *records) take(record *edge.Handed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, record)
}

// cancel closes all records, when the connection ends.
func (r *records) cancel() {
	r.mu.Lock()
	open := r.open
	r.open, r.over = nil, true
	r.mu.Unlock()
	for record := range open {
		record.Close(edge.Cancelled)
	}
}

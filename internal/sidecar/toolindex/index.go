// Package toolindex keeps facts about the tools of a server, for code that needs them before it
// forwards a call. It requests tools/list, page by page and within bounds, once for all callers that
// need the list, and again when the list may have changed.
package toolindex

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"sync"
	"time"
)

// Age is how old a list may be.
type Age struct {
	Listed  time.Duration // for a tool that the index has
	Missing time.Duration // for a tool that the index does not have
}

var (
	// Recent is for calls. Servers without sessions report changes only to listeners, and some serve
	// one listener at a time. So the adapter does not listen by itself.
	Recent = Age{Listed: time.Minute, Missing: time.Second}
	// Fresh is for a call that the adapter will refuse because of the list.
	Fresh = Age{Listed: time.Second, Missing: time.Second}
	// Forever is for servers that report changes to every client.
	Forever = Age{Listed: math.MaxInt64, Missing: math.MaxInt64}
)

// retryAfter bounds how long a failed request keeps the index from requesting the list again.
const retryAfter = time.Minute

// Index has one value for each tool that List.Keep keeps. The zero value is empty.
type Index[V any] struct {
	mu         sync.Mutex
	known      map[string]V
	requested  time.Time     // when the adapter requested the list in known, or when that failed
	failed     bool          // the last request failed
	changes    uint64        // of the list, as the server reported them
	covered    uint64        // changes before the last request
	requesting chan struct{} // closed when the request in flight ends; nil if there is none
}

// Find returns the value of a tool, and whether the list is young enough. If it is not, the caller
// should call Refresh.
func (x *Index[V]) Find(name string, age Age) (v V, current bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	v, known := x.known[name]
	return v, x.isCurrentLocked(known, age)
}

func (x *Index[V]) isCurrentLocked(known bool, age Age) bool {
	limit := age.Listed
	switch {
	case x.requested.IsZero() || x.changes != x.covered:
		return false
	case x.failed:
		limit = min(limit, retryAfter)
	case !known:
		limit = min(limit, age.Missing)
	}
	return time.Since(x.requested) <= limit
}

// Refresh requests the list if it is too old, or waits for the request of another caller. Then, or when
// ctx ends, it returns the value of a tool.
func (x *Index[V]) Refresh(ctx context.Context, name string, age Age, list List[V]) V {
	x.mu.Lock()
	v, known := x.known[name]
	if x.requesting == nil && !x.isCurrentLocked(known, age) {
		x.requesting = make(chan struct{})
		go x.request(&list, x.changes)
	}
	requesting := x.requesting
	x.mu.Unlock()
	if requesting == nil {
		return v
	}
	select {
	case <-requesting:
	case <-ctx.Done():
	}
	v, _ = x.Find(name, age)
	return v
}

// request requests the list for all callers of Refresh. The list covers so many changes.
func (x *Index[V]) request(list *List[V], covered uint64) {
	ctx, cancel := context.WithTimeout(list.Context, Timeout)
	defer cancel()
	requested := time.Now()
	found := map[string]V{}
	err := list.each(ctx, func(tools []Tool) {
		if list.Merge {
			x.merge(tools, list.Keep)
			return
		}
		for _, tool := range tools {
			if v, ok := list.Keep(tool); ok {
				found[tool.Name] = v
			}
		}
	})
	if err != nil && list.Failed != nil {
		list.Failed(err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case errors.Is(err, ErrAborted):
	case err != nil: // the old list stays
		x.requested, x.failed, x.covered = time.Now(), true, covered
	default:
		x.requested, x.failed, x.covered = requested, false, covered
		if !list.Merge {
			x.known = found
		}
	}
	close(x.requesting)
	x.requesting = nil
}

// Learn adds a page of the list: the result of a client's request.
func (x *Index[V]) Learn(result []byte, keep func(Tool) (V, bool)) {
	var read page
	if json.Unmarshal(result, &read) == nil {
		x.merge(read.Tools, keep)
	}
}

// merge adds tools to the index. If the index is full, merge drops all other tools.
func (x *Index[V]) merge(tools []Tool, keep func(Tool) (V, bool)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, tool := range tools {
		v, ok := keep(tool)
		switch {
		case !ok:
			delete(x.known, tool.Name)
		case x.known == nil || len(x.known) >= maxTools:
			x.known = map[string]V{tool.Name: v}
		default:
			x.known[tool.Name] = v
		}
	}
}

// Len returns how many tools the index has.
func (x *Index[V]) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.known)
}

// Outdate records that the server has reported a change.
func (x *Index[V]) Outdate() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.changes++
}

// Doubt records that the server behaves differently from its list. If the last request failed, Doubt
// does nothing, because the next call would wait for another request.
func (x *Index[V]) Doubt() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.failed {
		x.changes++
	}
}

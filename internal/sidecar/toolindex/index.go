// Package toolindex knows what a server says of its tools, for code that must know something
// of a tool before it passes a call on. It asks for tools/list, page by page and within
// bounds, once for all callers that need the list, and again when the list may be another.
package toolindex

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"sync"
	"time"
)

// Age is how old a list may be to be of use.
type Age struct {
	Listed  time.Duration // for a tool that the index knows
	Missing time.Duration // for one that it does not know
}

var (
	// Recent is for calls. Servers without sessions tell only listeners of changes, and some
	// serve one listener at a time, so the adapter does not listen for its own sake.
	Recent = Age{Listed: time.Minute, Missing: time.Second}
	// Fresh is for a call that is to be refused because of the list.
	Fresh = Age{Listed: time.Second, Missing: time.Second}
	// Forever is for servers that tell every client of changes.
	Forever = Age{Listed: math.MaxInt64, Missing: math.MaxInt64}
)

// pause is how long after a failure the next request for the list is, at most.
const pause = time.Minute

// Index has one value for each tool that List.Keep keeps. The zero value knows no tool.
type Index[V any] struct {
	mu      sync.Mutex
	known   map[string]V
	asked   time.Time     // when the adapter asked for the list that known is from, or when that failed
	failed  bool          // the last request had no list
	changes uint64        // that the server told of
	covered uint64        // of these, those before asked
	asking  chan struct{} // closed when the request that is in flight is over; nil without one
}

// Find returns what is known of a tool, and whether the list is of use at that age. If it is
// not, Refresh is to be called.
func (x *Index[V]) Find(name string, age Age) (v V, current bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	v, known := x.known[name]
	return v, x.isCurrentLocked(known, age)
}

func (x *Index[V]) isCurrentLocked(known bool, age Age) bool {
	since := time.Since(x.asked)
	switch {
	case x.asked.IsZero() || x.changes != x.covered:
		return false
	case x.failed:
		return since <= min(age.Listed, pause)
	case known:
		return since <= age.Listed
	default:
		return since <= min(age.Listed, age.Missing)
	}
}

// Refresh asks for the list, unless it is of use by now, or waits for the request that
// another caller has made. It returns what is known of a tool then, or when ctx ends.
func (x *Index[V]) Refresh(ctx context.Context, name string, age Age, list List[V]) V {
	x.mu.Lock()
	v, known := x.known[name]
	asking := x.asking
	if asking == nil && !x.isCurrentLocked(known, age) {
		asking = make(chan struct{})
		x.asking = asking
		go x.ask(&list, x.changes)
	}
	x.mu.Unlock()
	if asking == nil {
		return v
	}
	select {
	case <-asking:
	case <-ctx.Done():
	}
	v, _ = x.Find(name, age)
	return v
}

// ask makes the request for the list that callers wait for. The list covers the changes
// until now.
func (x *Index[V]) ask(list *List[V], covered uint64) {
	ctx, cancel := context.WithTimeout(list.Context, Timeout)
	defer cancel()
	asked := time.Now()
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
	case err != nil: // what was known before is better than nothing
		x.asked, x.failed, x.covered = time.Now(), true, covered
	default:
		x.asked, x.failed, x.covered = asked, false, covered
		if !list.Merge {
			x.known = found
		}
	}
	close(x.asking)
	x.asking = nil
}

// Learn adds a page of the list that a client asked for: the result of its request.
func (x *Index[V]) Learn(result []byte, keep func(Tool) (V, bool)) {
	var read page
	if json.Unmarshal(result, &read) == nil {
		x.merge(read.Tools, keep)
	}
}

// merge adds tools to the index. It forgets all others rather than keep more than a list
// may have.
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

// Len is how many tools the index knows.
func (x *Index[V]) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.known)
}

// Outdate says that the server has told of a change.
func (x *Index[V]) Outdate() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.changes++
}

// Doubt says that the server does something else than its list says. A server that had no
// list is not asked again before its time, because the next call would wait for it.
func (x *Index[V]) Doubt() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.failed {
		x.changes++
	}
}

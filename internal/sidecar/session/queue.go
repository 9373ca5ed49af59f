package session

import "slices"

// queue is a first-in-first-out queue that shrinks its memory as it empties. Otherwise one
// event could keep the memory of thousands, which the limits of a session would not count.
type queue[T any] struct {
	items []T
	head  int // index of the oldest item
}

// queueKeeps is how many places an empty queue keeps for later items.
const queueKeeps = 16

func (q *queue[T]) len() int { return len(q.items) - q.head }

// first returns the oldest item. There must be one.
func (q *queue[T]) first() *T { return &q.items[q.head] }

// all returns the items, oldest first.
func (q *queue[T]) all() []T { return q.items[q.head:] }

func (q *queue[T]) push(item T) {
	// At least a quarter of the places is free, so moving costs little per item.
	if len(q.items) == cap(q.items) && q.head > len(q.items)/4 {
		q.resize(q.items[:0])
	}
	q.items = append(q.items, item)
}

func (q *queue[T]) pop() T {
	var none T
	item := q.items[q.head]
	q.items[q.head] = none
	q.head++
	switch left := q.len(); {
	case left == 0 && cap(q.items) > queueKeeps:
		*q = queue[T]{}
	case left == 0:
		q.items, q.head = q.items[:0], 0
	case cap(q.items) > queueKeeps && left < cap(q.items)/4:
		q.resize(make([]T, 0, 2*left))
	}
	return item
}

// resize moves the items to another slice, which may be the front of the same one.
func (q *queue[T]) resize(to []T) {
	old := q.items
	to = append(to, q.all()...)
	if cap(to) == cap(old) { // it is the same slice
		clear(old[len(to):])
	}
	q.items, q.head = to, 0
}

// deleteFunc removes the items that the function picks.
func (q *queue[T]) deleteFunc(pick func(T) bool) {
	q.items, q.head = slices.DeleteFunc(q.all(), pick), 0
}

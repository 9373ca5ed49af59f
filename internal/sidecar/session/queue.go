package session

import "slices"

// queue is first in, first out. It lets go of memory as it empties: the limits of a
// session would mean little if one event could keep the space of thousands.
type queue[T any] struct {
	items []T
	head  int // items before it were taken
}

// queueKeeps is how many places an empty queue keeps, for those to come.
const queueKeeps = 16

func (q *queue[T]) len() int { return len(q.items) - q.head }

// first is the oldest item. There must be one.
func (q *queue[T]) first() *T { return &q.items[q.head] }

// all are the items, oldest first.
func (q *queue[T]) all() []T { return q.items[q.head:] }

func (q *queue[T]) push(item T) {
	// Moving is paid for by the items that were taken: a quarter of all, or more.
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

// resize moves the items to another place, which may be the front of the one they have.
func (q *queue[T]) resize(to []T) {
	old := q.items
	to = append(to, q.all()...)
	if cap(to) == cap(old) { // it is the same place
		clear(old[len(to):])
	}
	q.items, q.head = to, 0
}

// deleteFunc removes the items that the function picks.
func (q *queue[T]) deleteFunc(pick func(T) bool) {
	q.items, q.head = slices.DeleteFunc(q.all(), pick), 0
}

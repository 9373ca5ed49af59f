package edge

import (
	"bytes"
	"sync"
)

// pieces is a body while the Door reads it. Most bodies fit into the first piece, which
// has just the room that they need. Others are large, and may never be complete. The pool
// takes their pieces back, so that a client that sends halves of bodies costs neither
// garbage nor copies.
type pieces struct {
	first []byte // with room for bytes that have not arrived
	more  []*[pieceBytes]byte
	size  int // of the bytes that have arrived
}

var piecePool = sync.Pool{New: func() any { return new([pieceBytes]byte) }}

// grow adds room. Until the first piece has pieceBytes, it becomes larger.
func (p *pieces) grow(by int) {
	if len(p.first)+by <= pieceBytes {
		p.first = append(make([]byte, 0, len(p.first)+by), p.first...)[:len(p.first)+by]
		return
	}
	p.more = append(p.more, piecePool.Get().(*[pieceBytes]byte)) // the pool has no other type
}

// free returns the unused room.
func (p *pieces) free() []byte {
	if len(p.more) == 0 {
		return p.first[p.size:]
	}
	at := p.size - len(p.first) - (len(p.more)-1)*pieceBytes
	return p.more[len(p.more)-1][at:]
}

// joining is held while join copies a large body into one piece. The copy takes a while,
// and twice the memory. However many bodies become complete at the same time, other
// requests have a processor left.
var joining sync.Mutex

// join returns the body in one piece.
func (p *pieces) join() []byte {
	if len(p.more) == 0 {
		return p.first[:p.size]
	}
	joining.Lock()
	defer joining.Unlock()
	all, left := append(make([][]byte, 0, 1+len(p.more)), p.first), p.size-len(p.first)
	for _, piece := range p.more {
		n := min(pieceBytes, left)
		all, left = append(all, piece[:n]), left-n
	}
	body := bytes.Join(all, nil) // which does not clear the memory first
	p.drop()
	return body
}

// drop returns the pieces to the pool, for the next body.
func (p *pieces) drop() {
	for _, piece := range p.more {
		piecePool.Put(piece)
	}
	p.more = nil
}

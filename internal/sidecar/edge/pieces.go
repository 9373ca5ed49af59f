package edge

import "sync"

// pieces is a body that is being read. Most have all of their bytes in the first piece, which
// has just the room that it needs. All others are large, and may never be whole: their pieces
// are used again, so that a client that sends halves of bodies makes no garbage, and no copies.
type pieces struct {
	first []byte // with room for what is yet to come of it
	more  []*[pieceBytes]byte
	size  int // of what has come
}

var piecePool = sync.Pool{New: func() any { return new([pieceBytes]byte) }}

// grow adds room. Until the first piece has pieceBytes, it becomes larger.
func (p *pieces) grow(by int) {
	if len(p.first)+by <= pieceBytes {
		p.first = append(make([]byte, 0, len(p.first)+by), p.first...)[:len(p.first)+by]
		return
	}
	p.more = append(p.more, piecePool.Get().(*[pieceBytes]byte)) // nothing else is put there
}

// free is the room that is left.
func (p *pieces) free() []byte {
	if len(p.more) == 0 {
		return p.first[p.size:]
	}
	at := p.size - len(p.first) - (len(p.more)-1)*pieceBytes
	return p.more[len(p.more)-1][at:]
}

// joining is held while a large body is put together. That takes a while, and twice the
// memory: however many bodies are whole at the same time, others have a processor left.
var joining sync.Mutex

// join returns the body in one piece.
func (p *pieces) join() []byte {
	if len(p.more) == 0 {
		return p.first[:p.size]
	}
	joining.Lock()
	defer joining.Unlock()
	body := append(make([]byte, 0, p.size), p.first...)
	for _, piece := range p.more {
		body = append(body, piece[:min(pieceBytes, p.size-len(body))]...)
	}
	p.drop()
	return body
}

// drop gives the pieces to the next body.
func (p *pieces) drop() {
	for _, piece := range p.more {
		piecePool.Put(piece)
	}
	p.more = nil
}

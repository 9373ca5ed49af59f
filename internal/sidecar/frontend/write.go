package frontend

import (
	"net/http"
	"slices"
	"time"
)

// pieceSize is how much is written in one go, within one deadline.
const pieceSize = 64 << 10

// WritePieces gives the client the time to write for every piece anew: one that reads
// steadily gets all of it, however large it is.
func WritePieces(w http.ResponseWriter, control *http.ResponseController, data []byte, timeout time.Duration) error {
	for piece := range slices.Chunk(data, pieceSize) {
		if err := control.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// Interrupter can end a write that takes long.
type Interrupter interface {
	// Interruptible gets what ends the write that begins, and nil when it is over.
	Interruptible(interrupt func())
	// Wrote is called after each piece.
	Wrote()
}

// WriteInterruptible is WritePieces for data that may be large.
func WriteInterruptible(by Interrupter, w http.ResponseWriter, control *http.ResponseController, data []byte, timeout time.Duration) error {
	if len(data) <= pieceSize {
		return WritePieces(w, control, data, timeout)
	}
	by.Interruptible(func() { _ = control.SetWriteDeadline(time.Unix(1, 0)) })
	defer by.Interruptible(nil)
	for piece := range slices.Chunk(data, pieceSize) {
		if err := WritePieces(w, control, piece, timeout); err != nil {
			return err
		}
		by.Wrote()
	}
	return nil
}

// StartEvents begins an answer that is an event stream.
func StartEvents(w http.ResponseWriter) {
	header := w.Header()
	header.Set("Content-Type", TypeEvents)
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
}

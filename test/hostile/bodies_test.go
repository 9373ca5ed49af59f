//go:build hostile

package hostile

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	halfSent  = 200
	bodyBytes = 32 << 20
)

// closed is a connection that the adapter closes without an answer.
const closed = "closed without an answer"

// sendBodies keeps that many bodies half sent. One that the adapter refuses is followed by
// another.
func sendBodies(a *attacker) error {
	var senders sync.WaitGroup
	for range halfSent {
		senders.Go(func() {
			for !a.stopped() {
				if err := sendBody(a); err != nil {
					a.wrong("%v", err)
					return
				}
			}
		})
	}
	senders.Wait()
	return nil
}

// sendBody sends half of a body as fast as it is taken, and then a byte now and then, until
// the adapter has had enough.
func sendBody(a *attacker) error {
	conn, err := (&net.Dialer{}).DialContext(a, "tcp", a.address)
	if a.stopped() {
		return nil
	}
	if err != nil {
		return err
	}
	a.made(1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		switch {
		case a.stopped(): // and closed the connection itself
		case err != nil:
			a.got(closed)
		default:
			a.answered(answer, http.StatusRequestTimeout)
			_ = answer.Body.Close()
		}
	}()
	_, err = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n", a.address, bodyBytes)
	piece := bytes.Repeat([]byte(" "), 64<<10)
	for sent := 0; err == nil && sent < bodyBytes/2 && !a.stopped(); sent += len(piece) {
		_, err = conn.Write(piece)
	}
	for drip := time.Tick(100 * time.Millisecond); err == nil; {
		select {
		case <-over:
			return conn.Close()
		case <-a.Done():
			err = a.Err()
		case <-drip:
			_, err = conn.Write(piece[:1])
		}
	}
	// The adapter does not take more. If it says why, that is there to be read.
	select {
	case <-over:
	case <-a.Done():
	}
	err = conn.Close()
	<-over
	return err
}

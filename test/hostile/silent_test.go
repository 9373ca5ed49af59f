//go:build hostile

package hostile

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
)

const (
	silentConnections = 10_000
	silentRate        = 5_000
)

// openSilent opens connections and says nothing on them. It opens that many while the users
// are measured. The adapter closes some for others.
func openSilent(a *attacker) error {
	var open sync.WaitGroup
	defer open.Wait()
	return a.pace(silentRate, silentConnections, func() error {
		conn, err := net.Dial("tcp", a.address)
		if err != nil {
			return err
		}
		open.Go(func() { beSilent(a, conn) })
		return nil
	})
}

// beSilent waits for the adapter to close a connection.
func beSilent(a *attacker, conn net.Conn) {
	hangUp := context.AfterFunc(a, func() { _ = conn.Close() })
	defer hangUp()
	answer, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	switch {
	case a.stopped():
	case err != nil:
		a.got(closed)
		a.begun()
	default:
		a.answered(answer)
		_ = answer.Body.Close()
	}
	_ = conn.Close()
}

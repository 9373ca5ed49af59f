//go:build hostile

package hostile

import (
	"errors"
	"fmt"
	"time"

	"github.com/slipway-mcp/slipway/bench/load"
)

const floodSize = 1_000_000

func flood(number int, kind string) *load.Call {
	return &load.Call{ID: number, Tool: "flood", Arguments: fmt.Appendf(nil, `"text":%q,"n":%d`, kind, floodSize), Text: []byte("done")}
}

// floodRequests has a server ask its client that often, again and again, and answers nothing.
func floodRequests(a *attacker) error {
	session, err := load.Open(a.address)
	if err != nil {
		return err
	}
	for number := 1; number == 1 || !a.stopped(); number++ {
		err := session.Do(flood(number, "requests"), func([]byte) error {
			a.got("requests to answer")
			a.begun()
			return nil
		})
		if err != nil {
			return err
		}
		a.made(floodSize)
	}
	return session.Leave()
}

// floodEvents has a server send that many events, again and again, on a stream that is read
// no further than its first event.
func floodEvents(a *attacker) error {
	session, err := load.Open(a.address)
	if err != nil {
		return err
	}
	stream, err := session.Listen(func([]byte) {
		a.got("events read")
		a.begun()
		select {} // until the process ends
	})
	if err != nil {
		return err
	}
	other, err := keepCall(session)
	if err != nil {
		return err
	}
	for number := 1; number == 1 || !a.stopped(); number++ {
		err := session.Do(flood(number, "notifications"), func(message []byte) error {
			return fmt.Errorf("the call gets what belongs to the stream: %s", message)
		})
		if err != nil {
			return err
		}
		a.made(floodSize)
	}
	return errors.Join(stream.Close(), session.Leave(), other.Close())
}

// keepCall makes a call that takes longer than the attack, and returns when it is in flight.
// Events would go to the stream of an only call, and not to the general one that the client does not read.
func keepCall(session *load.Remote) (*load.Remote, error) {
	other, err := session.Another()
	if err != nil {
		return nil, err
	}
	sleep := &load.Call{ID: -1, Tool: "sleep", Token: 1, Arguments: fmt.Appendf(nil, `"text":"begun","ms":%d`, time.Hour.Milliseconds())}
	if err := other.Begin(sleep); err != nil {
		return nil, err
	}
	begun := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- other.Finish(sleep, func([]byte) error {
			close(begun)
			return nil
		})
	}()
	select {
	case <-begun:
		return other, nil
	case err := <-ended:
		return nil, errors.Join(err, other.Close())
	}
}

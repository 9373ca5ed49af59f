package sidecar

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// way is how a client or its server leaves a session.
type way struct {
	name  string
	leave func(ctx context.Context, url string) error
	kills bool // the server's process
	every int  // used once in so many rounds; each time, if zero
}

// deathNotice is in the answer to a call whose server died. How it died may come to
// light too late to be told, on a busy machine.
const deathNotice = `"code":-32603,`

var ways = []way{
	{name: "deleted", leave: with(func(ctx context.Context, c *client) error { return c.delete(ctx) })},
	{name: "forgotten", leave: with(func(context.Context, *client) error { return nil })},
	{name: "initialize given up", leave: giveUp},
	{name: "gone soon after a call", leave: with(func(ctx context.Context, c *client) error {
		c.breakOff(ctx, call(1, "sleep", `"ms":300`))
		return nil
	})},
	{name: "deleted in the middle of a call", leave: with(func(ctx context.Context, c *client) error {
		return errors.Join(c.glance(ctx, http.MethodPost, call(1, "sleep", `"ms":60000,"text":"begun"`)), c.delete(ctx))
	})},
	{name: "gone in the middle of an answer", leave: with(func(ctx context.Context, c *client) error {
		return c.glance(ctx, http.MethodPost, call(1, "burst", `"n":300,"size":1000`))
	})},
	{name: "gone when asked", leave: with(func(ctx context.Context, c *client) error {
		return c.glance(ctx, http.MethodPost, call(1, "ask", `"text":"well?"`))
	})},
	{name: "gone from an open stream", leave: with(func(ctx context.Context, c *client) error {
		return c.glance(ctx, http.MethodGet, "")
	})},
	{name: "connection of 2024-11-05 closed", leave: closeLegacy},
	{name: "killed", kills: true, leave: with(killWithStream)},
	{name: "killed in the middle of a call", kills: true, leave: with(killInCall)},
	{name: "exits", kills: true, leave: with(func(ctx context.Context, c *client) error {
		return c.expect(ctx, call(1, "exit", `"n":3`), deathNotice)
	})},
	{name: "closes its output", kills: true, every: 4, leave: with(func(ctx context.Context, c *client) error {
		return c.expect(ctx, call(1, "close", ""), "closed its standard output")
	})},
	{name: "dies and leaves children", kills: true, every: 4, leave: with(func(ctx context.Context, c *client) error {
		return errors.Join(c.expect(ctx, call(1, "spawn", ""), "done"), c.expect(ctx, call(2, "kill", ""), deathNotice))
	})},
}

// errGivenUp is that of a client that was slower than the short time-outs allow, as it may
// be on a busy machine.
var errGivenUp = errors.New("the session or the call was given up")

// orGivenUp is the error, or that the adapter has given up what the answer is about.
func orGivenUp(answer string, err error) error {
	if strings.Contains(answer, "no such session") || strings.Contains(answer, "the call took longer than") {
		return fmt.Errorf("%w: %.300s", errGivenUp, answer)
	}
	return err
}

// with opens a session to be left. When every slot is taken, or the adapter gives up the
// session before it is left, the client opens another, as clients do.
func with(leave func(context.Context, *client) error) func(context.Context, string) error {
	return func(ctx context.Context, url string) error {
		for {
			c, err := newClient(ctx, url)
			switch {
			case err == nil && c.session == "":
				err = errGivenUp // before initialize was answered
			case err == nil:
				err = leave(ctx, c)
			}
			c.http.CloseIdleConnections()
			if err == nil || !errors.Is(err, errGivenUp) && !strings.Contains(err.Error(), "503") {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

func (c *client) delete(ctx context.Context) error {
	response, err := c.do(ctx, http.MethodDelete, "")
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// expect makes a call and looks for a text in what comes back.
func (c *client) expect(ctx context.Context, body, want string) error {
	got, err := c.messages(ctx, body)
	if err != nil {
		return err
	}
	if text := strings.Join(got, "\n"); !strings.Contains(text, want) {
		return orGivenUp(text, fmt.Errorf("got %.300q, want %q in it", got, want))
	}
	return nil
}

// breakOff makes a call and goes away a moment later, wherever the call has got to.
func (c *client) breakOff(ctx context.Context, body string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, _ = c.messages(ctx, body)
}

// glance reads the first bytes of an answer and goes away.
func (c *client) glance(ctx context.Context, method, body string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	response, err := c.do(ctx, method, body)
	if err != nil {
		return err
	}
	if response.StatusCode == http.StatusNotFound {
		err = errGivenUp
	} else {
		_, err = io.ReadFull(response.Body, make([]byte, 4))
	}
	cancel()
	return errors.Join(err, response.Body.Close())
}

// giveUp goes away at some moment before or after the session has been opened.
func giveUp(ctx context.Context, url string) error {
	given, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(8000))*time.Microsecond)
	defer cancel()
	c := &client{url: url, http: &http.Client{Transport: &http.Transport{}}}
	defer c.http.CloseIdleConnections()
	response, err := c.post(given, initializeMessage)
	if err == nil {
		err = response.Body.Close()
	}
	if given.Err() != nil {
		return nil
	}
	return err
}

func closeLegacy(ctx context.Context, url string) error {
	c := &client{url: strings.TrimSuffix(url, Path) + "/sse", http: &http.Client{Transport: &http.Transport{}}}
	defer c.http.CloseIdleConnections()
	return c.glance(ctx, http.MethodGet, "")
}

// killWithStream has the server's process killed from outside while its client
// listens, and waits until the client is told.
func killWithStream(ctx context.Context, c *client) error {
	response, err := c.do(ctx, http.MethodGet, "")
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	pid, err := c.pid(ctx)
	if err != nil {
		return err
	}
	if err := kill(pid); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

func killInCall(ctx context.Context, c *client) error {
	pid, err := c.pid(ctx)
	if err != nil {
		return err
	}
	// A burst shows that the call has reached the server.
	response, err := c.post(ctx, call(2, "burst", `"n":20000,"size":100`))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewReader(response.Body)
	if line, err := lines.ReadString('\n'); err != nil { // it is no stream
		return orGivenUp(line, fmt.Errorf("read %.300q: %w", line, err))
	}
	if err := kill(pid); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, lines)
	return err
}

// kill kills the process of a session, unless it has ended with the session.
func kill(pid int) error {
	err := syscall.Kill(pid, syscall.SIGKILL)
	switch {
	case errors.Is(err, syscall.ESRCH):
		return errGivenUp
	case err != nil:
		return fmt.Errorf("kill server: %w", err)
	}
	return nil
}

// pid is the number of the server's process.
func (c *client) pid(ctx context.Context) (int, error) {
	got, err := c.messages(ctx, call("pid", "pid", ""))
	if err != nil {
		return 0, err
	}
	var answer struct {
		Result struct{ Content []struct{ Text string } }
	}
	if len(got) != 1 || json.Unmarshal([]byte(got[0]), &answer) != nil || len(answer.Result.Content) != 1 {
		return 0, orGivenUp(strings.Join(got, "\n"), fmt.Errorf("ask for the pid: got %.300q", got))
	}
	return strconv.Atoi(answer.Result.Content[0].Text)
}

// Package bridge serves a client that speaks on standard input and output from a server that speaks
// Streamable HTTP. It survives the end of the server's session: it opens another one, as the client did.
package bridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

const (
	// maxMessage bounds one message in either direction. It is what adapters take by default.
	maxMessage = 64 << 20
	// openTimeout bounds how long a server may take to open a session again.
	openTimeout = 2 * time.Minute
	// endTimeout bounds how long the end of the input waits for answers, and for the end of the session.
	endTimeout = 10 * time.Second
)

// Bridge is one client's way to a server.
type Bridge struct {
	Client   *http.Client
	Endpoint string

	live  context.Context // of Run
	write sync.Mutex      // one message at a time on the output
	out   io.Writer
	tools toolindex.Index[toolFacts]

	opening sync.Mutex // one session at a time is opened again

	mu         sync.Mutex
	initialize json.RawMessage // as the client sent it
	session    string
	revision   string
	flights    map[string]*flight // by the id of the client
	isListened bool               // the client has finished to initialize
	stopStream context.CancelFunc // of the stream for what the server sends by itself
}

// message is what the bridge looks at of a message.
type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`

	envelope  rpc.Envelope
	isScanned bool            // the message is one that all parsers read alike, and has an envelope
	original  json.RawMessage // id of the client, if the request has another
}

// read reads a message.
func read(content []byte) (message, error) {
	var m message
	if err := json.Unmarshal(content, &m); err != nil {
		return message{}, err
	}
	envelope, err := rpc.Scan(content)
	m.envelope, m.isScanned = envelope, err == nil // the server refuses it if it must
	return m, nil
}

// isModern says whether the message is one of a client without sessions.
func (m message) isModern() bool { return m.isScanned && len(m.envelope.ProtocolVersion) > 0 }

// isRequest says whether the sender waits for an answer.
func (m message) isRequest() bool { return len(m.ID) > 0 && m.Method != "" }

// Run passes messages on until the client closes its output, or ctx ends. A line that is not a message is
// answered with an error.
func (b *Bridge) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	b.out = out
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.live = ctx
	lines, scanned := scan(ctx, in)
	var calls sync.WaitGroup
	for line := range lines {
		m, err := read(line)
		if err != nil {
			b.answer(json.RawMessage("null"), -32700, "not a JSON-RPC message: "+err.Error())
			continue
		}
		switch {
		case m.Method == rpc.MethodInitialize:
			b.mu.Lock()
			b.initialize, b.session, b.revision, b.isListened = line, "", "", false
			b.mu.Unlock()
			b.pass(ctx, line, m) // what follows belongs to the session
		case m.isRequest():
			calls.Go(func() { b.pass(ctx, line, m) })
		default:
			b.pass(ctx, line, m) // in the order of the client
		}
	}
	if ctx.Err() == nil {
		waitFor(&calls, endTimeout) // for answers that are on their way
		b.end(ctx)
	}
	cancel()
	calls.Wait()
	select {
	case err := <-scanned:
		return err
	default:
		return nil // ctx has ended
	}
}

// scan reads lines in the background: a read of standard input cannot be interrupted.
func scan(ctx context.Context, in io.Reader) (lines <-chan json.RawMessage, done <-chan error) {
	found, ended := make(chan json.RawMessage), make(chan error, 1)
	read := make(chan json.RawMessage)
	go func() {
		defer close(read)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(make([]byte, 0, 64<<10), maxMessage)
		for scanner.Scan() {
			if line := bytes.TrimSpace(scanner.Bytes()); len(line) > 0 {
				select {
				case read <- bytes.Clone(line):
				case <-ctx.Done():
					return
				}
			}
		}
		if err := scanner.Err(); err != nil {
			ended <- fmt.Errorf("read messages of the client: %w", err)
		} else {
			ended <- nil
		}
	}()
	go func() {
		defer close(found)
		for {
			select {
			case line, ok := <-read:
				if !ok {
					return
				}
				found <- line
			case <-ctx.Done():
				return
			}
		}
	}()
	return found, ended
}

// waitFor waits until all calls are answered, or the time is over.
func waitFor(calls *sync.WaitGroup, most time.Duration) {
	done := make(chan struct{})
	go func() {
		calls.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(most):
	}
}

func (b *Bridge) current() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.session
}

var errNoSession = errors.New("the session has ended")

// reopen opens another session in place of one that the server no longer knows. Of several calls that
// notice it, one does.
func (b *Bridge) reopen(ctx context.Context, ended string) error {
	b.opening.Lock()
	defer b.opening.Unlock()
	b.mu.Lock()
	initialize, isListened := b.initialize, b.isListened
	b.mu.Unlock()
	if b.current() != ended {
		return nil
	}
	if initialize == nil {
		return errNoSession
	}
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	m, err := read(initialize)
	if err != nil {
		return err
	}
	response, _, err := b.send(opening, initialize, b.header(initialize, m, "", ""))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		content, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // what is there of it
		return refused(response, content)
	}
	var answer []byte
	_, err = receive(response, m.ID, func(content []byte) error {
		answer = bytes.Clone(content)
		return nil
	})
	if err := errors.Join(err, b.note(response.Header.Get(sessionHeader), answer)); err != nil {
		return fmt.Errorf("open another session: %w", err)
	}
	if !isListened {
		return nil // the client says so itself
	}
	_, err = b.post(opening, []byte(rpc.Initialized), message{Method: "notifications/initialized"})
	if err == nil {
		b.listen(ctx)
	}
	return err
}

// post sends a message, and writes every answer to the client.
func (b *Bridge) post(ctx context.Context, content []byte, m message) (o outcome, err error) {
	b.mu.Lock()
	session, revision := b.session, b.revision
	b.mu.Unlock()
	response, isSent, err := b.exchange(ctx, content, m, b.header(content, m, session, revision))
	o.isSent = isSent
	if err != nil {
		return o, err
	}
	defer func() { _ = response.Body.Close() }()
	o.isRefused = response.StatusCode != http.StatusOK
	switch {
	case response.StatusCode == http.StatusNotFound && session != "":
		return o, errNoSession
	case response.StatusCode == http.StatusAccepted:
		return o, nil
	case o.isRefused:
		content, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
		if err == nil && isAnswer(content, m.ID) {
			o.isAnswered = true
			return o, b.emit(restore(content, m)) // with its code, which clients may know what to do about
		}
		return o, refused(response, content)
	}
	o.isAnswered, err = receive(response, m.ID, func(content []byte) error {
		o.isHeard = true
		if !isAnswer(content, m.ID) {
			return b.emit(content)
		}
		switch m.Method {
		case rpc.MethodInitialize:
			_ = b.note(response.Header.Get(sessionHeader), content) // the client sees an error itself
		case toolindex.Method:
			b.learn(content)
		}
		return b.emit(restore(content, m))
	})
	return o, err
}

// note keeps what the server has agreed to.
func (b *Bridge) note(session string, answer []byte) error {
	var agreed struct {
		Result struct {
			ProtocolVersion string `json:"protocolVersion"`
		} `json:"result"`
		Error *struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer, &agreed); err != nil {
		return err
	}
	if agreed.Error != nil {
		return errors.New(agreed.Error.Message)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session, b.revision = session, agreed.Result.ProtocolVersion
	return nil
}

// emit writes a message to the client, in one line.
func (b *Bridge) emit(content []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, content); err != nil {
		return fmt.Errorf("read a message of the server: %w", err)
	}
	line.WriteByte('\n')
	b.write.Lock()
	defer b.write.Unlock()
	_, err := b.out.Write(line.Bytes())
	return err
}

// answer answers a message that could not be passed on.
func (b *Bridge) answer(id json.RawMessage, code int, words string) {
	answer, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": words}})
	if err == nil {
		_ = b.emit(answer) // a client that is gone is not told
	}
}

// end ends the session, so that its process does not wait for its time-out.
func (b *Bridge) end(ctx context.Context) {
	b.mu.Lock()
	session, revision := b.session, b.revision
	b.mu.Unlock()
	if session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, b.Endpoint, nil)
	if err != nil {
		return
	}
	setSession(request.Header, session, revision)
	if response, err := b.Client.Do(request); err == nil {
		_ = response.Body.Close()
	}
}

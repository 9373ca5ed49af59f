// Package bridge serves a client that speaks on standard input and output from a server that speaks
// Streamable HTTP. It survives the end of the server's session: it opens another one as the client did,
// and sends what was not answered again only if the server cannot have seen it.
package bridge

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
)

// The headers of the transport.
const (
	sessionHeader  = "Mcp-Session-Id"
	revisionHeader = "Mcp-Protocol-Version"
	methodHeader   = "Mcp-Method"
	nameHeader     = "Mcp-Name"
)

// maxMessage bounds one message in either direction. It is what adapters take by default.
const maxMessage = 64 << 20

// Bridge is one client's way to a server.
type Bridge struct {
	Client   *http.Client
	Endpoint string

	write sync.Mutex // one message at a time on the output
	out   io.Writer

	mu         sync.Mutex
	initialize json.RawMessage // as the client sent it
	session    string
	revision   string
	stopStream context.CancelFunc // of the stream for what the server sends by itself
}

// message is what the bridge looks at of a message.
type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
}

// Run passes messages on until the client closes its output, or ctx ends.
func (b *Bridge) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	b.out = out
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxMessage)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		content := bytes.Clone(line)
		var m message
		if err := json.Unmarshal(content, &m); err != nil {
			return fmt.Errorf("read a message of the client: %w", err)
		}
		if m.Method == "initialize" {
			b.open(ctx, content, m) // what follows belongs to the session
			continue
		}
		calls.Go(func() { b.pass(ctx, content, m) })
	}
	cancel()
	if err := lines.Err(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("read messages of the client: %w", err)
	}
	b.end(context.WithoutCancel(ctx))
	return nil
}

// open opens the session that the client asks for.
func (b *Bridge) open(ctx context.Context, content json.RawMessage, m message) {
	b.mu.Lock()
	b.initialize, b.session, b.revision = content, "", ""
	b.mu.Unlock()
	if err := b.post(ctx, content, true); err != nil {
		b.refuse(m, err)
	}
}

// pass sends one message, and passes on what the server answers.
func (b *Bridge) pass(ctx context.Context, content json.RawMessage, m message) {
	err := b.post(ctx, content, false)
	if errors.Is(err, errNoSession) {
		if err = b.reopen(ctx); err == nil {
			err = b.post(ctx, content, false)
		}
	}
	if err != nil && ctx.Err() == nil {
		b.refuse(m, err)
		return
	}
	if m.Method == "notifications/initialized" {
		b.listen(ctx)
	}
}

var errNoSession = errors.New("the session has ended")

// reopen opens another session in place of one that the server no longer knows.
func (b *Bridge) reopen(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.initialize == nil {
		return errNoSession
	}
	response, err := b.send(ctx, b.initialize, "", "")
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return refusal(response)
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, maxMessage)); err != nil {
		return err
	}
	b.session = response.Header.Get(sessionHeader)
	done, err := b.send(ctx, json.RawMessage(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), b.session, b.revision)
	if err != nil {
		return err
	}
	return done.Body.Close()
}

// post sends a message and writes every answer to the client.
func (b *Bridge) post(ctx context.Context, content json.RawMessage, opens bool) error {
	b.mu.Lock()
	session, revision := b.session, b.revision
	b.mu.Unlock()
	response, err := b.send(ctx, content, session, revision)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	switch {
	case response.StatusCode == http.StatusNotFound && session != "":
		return errNoSession
	case response.StatusCode == http.StatusAccepted:
		return nil
	case response.StatusCode != http.StatusOK:
		return refusal(response)
	}
	return b.receive(response, func(answer []byte) error {
		if opens {
			b.note(response.Header.Get(sessionHeader), answer)
		}
		return b.emit(answer)
	})
}

// note keeps what the server has agreed to.
func (b *Bridge) note(session string, answer []byte) {
	var agreed struct {
		Result struct {
			ProtocolVersion string `json:"protocolVersion"`
		} `json:"result"`
	}
	_ = json.Unmarshal(answer, &agreed) // an answer without a revision is passed on as it is
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session, b.revision = session, agreed.Result.ProtocolVersion
}

func (b *Bridge) send(ctx context.Context, content json.RawMessage, session, revision string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.Endpoint, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	setSession(request, session, revision)
	repeat(request, content)
	return b.Client.Do(request)
}

// repeat sets the headers that repeat parts of a message of a client without sessions.
func repeat(request *http.Request, content json.RawMessage) {
	var m struct {
		Method string `json:"method"`
		Params struct {
			Name   string `json:"name"`
			URI    string `json:"uri"`
			TaskID string `json:"taskId"`
			Meta   struct {
				Revision string `json:"io.modelcontextprotocol/protocolVersion"`
			} `json:"_meta"`
		} `json:"params"`
	}
	if json.Unmarshal(content, &m) != nil || m.Params.Meta.Revision == "" {
		return // it is a message of a session
	}
	request.Header.Set(revisionHeader, m.Params.Meta.Revision)
	request.Header.Set(methodHeader, m.Method)
	if name := cmp.Or(m.Params.Name, m.Params.URI, m.Params.TaskID); name != "" {
		request.Header.Set(nameHeader, name)
	}
}

func setSession(request *http.Request, session, revision string) {
	if session != "" {
		request.Header.Set(sessionHeader, session)
	}
	if revision != "" {
		request.Header.Set(revisionHeader, revision)
	}
}

// listen receives what the server sends by itself, in the background. A server need not offer that.
func (b *Bridge) listen(ctx context.Context) {
	b.mu.Lock()
	session, revision := b.session, b.revision
	if b.stopStream != nil {
		b.stopStream()
	}
	ctx, b.stopStream = context.WithCancel(ctx)
	b.mu.Unlock()
	if session == "" {
		return
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.Endpoint, nil)
	if err != nil {
		return
	}
	request.Header.Set("Accept", "text/event-stream")
	setSession(request, session, revision)
	response, err := b.Client.Do(request)
	if err != nil {
		return
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		_ = b.receive(response, b.emit) // calls go on without it
	}
}

// receive reads the messages of an answer: one, or those of a stream.
func (b *Bridge) receive(response *http.Response, each func([]byte) error) error {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if kind != "text/event-stream" {
		content, err := io.ReadAll(io.LimitReader(response.Body, maxMessage))
		if err != nil || len(content) == 0 {
			return err
		}
		return each(content)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(make([]byte, 0, 64<<10), maxMessage)
	var data []byte
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		switch {
		case field == "data":
			data = append(append(data, strings.TrimPrefix(value, " ")...), '\n')
		case lines.Text() == "" && len(bytes.TrimSpace(data)) > 0:
			if err := each(data); err != nil {
				return err
			}
			data = nil
		}
	}
	return lines.Err()
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

// refuse answers a call that could not be passed on. A notification has no answer.
func (b *Bridge) refuse(m message, cause error) {
	if len(m.ID) == 0 || m.Method == "" {
		return
	}
	answer, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32000, "message": cause.Error()},
	})
	if err == nil {
		_ = b.emit(answer) // a client that is gone is not told
	}
}

// refusal is the error of an answer that is no message.
func refusal(response *http.Response) error {
	content, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	var answer struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(content, &answer) == nil && answer.Error.Message != "" {
		return errors.New(answer.Error.Message)
	}
	return fmt.Errorf("the server answers %s", response.Status)
}

// end ends the session, so that its process does not wait for its time-out.
func (b *Bridge) end(ctx context.Context) {
	b.mu.Lock()
	session, revision := b.session, b.revision
	b.mu.Unlock()
	if session == "" {
		return
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, b.Endpoint, nil)
	if err != nil {
		return
	}
	setSession(request, session, revision)
	if response, err := b.Client.Do(request); err == nil {
		_ = response.Body.Close()
	}
}

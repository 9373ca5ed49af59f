package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// The headers of the transport.
const (
	sessionHeader  = "Mcp-Session-Id"
	revisionHeader = "Mcp-Protocol-Version"
)

// send sends a message, and says whether a server may have got it.
func (b *Bridge) send(ctx context.Context, content []byte, header http.Header) (response *http.Response, isSent bool, err error) {
	var isConnected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { isConnected.Store(true) }})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.Endpoint, bytes.NewReader(content))
	if err != nil {
		return nil, false, err
	}
	request.Header = header
	response, err = b.Client.Do(request)
	if err != nil {
		b.Client.CloseIdleConnections() // they lead to the same pod
	}
	return response, isConnected.Load(), err
}

func setSession(header http.Header, session, revision string) {
	if session != "" {
		header.Set(sessionHeader, session)
	}
	if revision != "" {
		header.Set(revisionHeader, revision)
	}
}

// The times between two attempts to receive what the server sends by itself.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// listen receives what the server sends by itself, in the background and until the session is another.
func (b *Bridge) listen(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isListened = true
	if b.stopStream != nil {
		b.stopStream()
		b.stopStream = nil
	}
	if b.session == "" {
		return // clients without sessions ask for it themselves
	}
	ctx, b.stopStream = context.WithCancel(ctx)
	go func(session, revision string) {
		for wait := firstRetry; b.stream(ctx, session, revision); wait = min(2*wait, lastRetry) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	}(b.session, b.revision)
}

// stream receives from one stream until it ends, and says whether another attempt makes sense. A server
// need not offer one.
func (b *Bridge) stream(ctx context.Context, session, revision string) (again bool) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.Endpoint, nil)
	if err != nil {
		return false
	}
	request.Header.Set("Accept", "text/event-stream")
	setSession(request.Header, session, revision)
	response, err := b.Client.Do(request)
	if err != nil {
		return ctx.Err() == nil
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return response.StatusCode >= http.StatusInternalServerError
	}
	_, _ = receive(response, nil, b.emit) // calls go on without it
	return ctx.Err() == nil
}

// isAnswer says whether a message answers the request with an id.
func isAnswer(content, id []byte) bool {
	var m message
	return len(id) > 0 && json.Unmarshal(content, &m) == nil && m.Method == "" && bytes.Equal(m.ID, id)
}

// receive reads the messages of a response: one, or those of a stream, up to the answer to a request.
func receive(response *http.Response, id json.RawMessage, each func([]byte) error) (answered bool, err error) {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if kind != "text/event-stream" {
		content, err := io.ReadAll(io.LimitReader(response.Body, maxMessage))
		if err != nil || len(bytes.TrimSpace(content)) == 0 {
			return false, err
		}
		return isAnswer(content, id), each(content)
	}
	events := rpc.NewEventReader(response.Body, maxMessage)
	for {
		event, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, err
		case len(bytes.TrimSpace(event.Data)) == 0:
			continue
		}
		if err := each(event.Data); err != nil {
			return false, err
		}
		if isAnswer(event.Data, id) {
			return true, nil
		}
	}
}

// maxRefusal bounds what is read of a response that refuses a message.
const maxRefusal = 64 << 10

// refused is the error of a response that refuses a message.
func refused(response *http.Response, content []byte) error {
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

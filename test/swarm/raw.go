package swarm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

const (
	headerSession = "Mcp-Session-Id"
	headerLast    = "Last-Event-ID"
	headerVersion = "Mcp-Protocol-Version"
	revision      = "2025-11-25"
	mostBytes     = 1 << 20
	// resumePause is the time between two attempts to resume a stream.
	resumePause = 100 * time.Millisecond
)

// raw is a session of a client that speaks HTTP by itself.
type raw struct {
	client  *client
	http    *http.Client
	id      string
	request int // the id of the last request
}

// message is what the server sends.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Progress float64 `json:"progress"`
	} `json:"params"`
	Result *struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	} `json:"result"`
	Error json.RawMessage `json:"error"`
}

func (m *message) text() string {
	if m.Result == nil || len(m.Result.Content) != 1 {
		return ""
	}
	return m.Result.Content[0].Text
}

// initialize opens a session.
func (c *client) initialize(ctx context.Context, sender *http.Client) (session, error) {
	s := &raw{client: c, http: sender}
	response, err := s.post(ctx, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+revision+`","capabilities":{"elicitation":{}},"clientInfo":{"name":"swarm","version":"1"}}}`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := s.read(response, func(*message, string) error { return nil })
	switch {
	case err != nil:
		return nil, err
	case string(answer.ID) != "0":
		return nil, wrong("the answer to initialize has the id %s", answer.ID)
	}
	if s.id = response.Header.Get(headerSession); s.id == "" {
		return nil, wrong("the answer to initialize has no session id")
	}
	return s, s.notify(ctx, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (s *raw) tick(ctx context.Context, word string) (string, error) {
	answer, err := s.call(ctx, "tick", `{"text":"`+word+`"}`, nil)
	if err != nil {
		return "", err
	}
	return answer.text(), nil
}

func (s *raw) ask(ctx context.Context) (asked int, text string, err error) {
	answer, err := s.call(ctx, "ask", `{"text":"why?"}`, func(m *message, _ string) error {
		if m.Method != "elicitation/create" {
			return nil
		}
		asked++
		return s.notify(ctx, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"action":"accept","content":{}}}`)
	})
	if err != nil {
		return asked, "", err
	}
	return asked, answer.text(), nil
}

// cancel cancels a call that has begun. Its stream ends without an answer.
func (s *raw) cancel(ctx context.Context) error {
	begun := false
	answer, err := s.call(ctx, "sleep", `{"ms":600000,"text":"asleep"}`, func(*message, string) error {
		begun = true
		return s.notify(ctx, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+strconv.Itoa(s.request)+`}}`)
	})
	switch {
	case begun && errors.Is(err, errNoAnswer):
		return nil
	case err != nil:
		return err
	}
	return wrong("a cancelled call was answered %q", answer.text())
}

func (s *raw) stream(ctx context.Context, number, cut int) (got streamed, err error) {
	last := ""
	note := func(m *message, id string) {
		if m.Method == "notifications/progress" {
			got.progress, last = append(got.progress, m.Params.Progress), id
		}
	}
	answer, err := s.call(ctx, "burst", fmt.Sprintf(`{"n":%d}`, number), func(m *message, id string) error {
		note(m, id)
		if len(got.progress) == cut && last != "" {
			return errCut
		}
		return nil
	})
	if got.resumed = errors.Is(err, errCut); got.resumed {
		answer, err = s.resume(ctx, &last, func(m *message, id string) error {
			note(m, id)
			return nil
		})
	}
	if err != nil {
		return got, err
	}
	got.answer = answer.text()
	return got, nil
}

// errCut ends the reading of a stream that is to be resumed, and errNoAnswer is of one that ended before the answer.
var (
	errCut      = errors.New("the client has cut the stream")
	errNoAnswer = errors.New("the stream ended without an answer")
)

// resume goes on with a stream after the last event, until it has the answer. A stream that breaks again is
// resumed again.
func (s *raw) resume(ctx context.Context, last *string, each func(*message, string) error) (*message, error) {
	for {
		answer, err := s.listen(ctx, *last, each)
		if failed, ok := errors.AsType[*failure](err); err == nil || ok && (failed.kind == Wrong || failed.kind == Over) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("resume a stream: %w: %w", ctx.Err(), err)
		case <-time.After(resumePause):
		}
	}
}

func (s *raw) listen(ctx context.Context, last string, each func(*message, string) error) (*message, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.client.swarm.options.URL, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set(headerLast, last)
	response, err := s.do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return s.read(response, each)
}

// call calls a tool. The function gets all messages before the answer.
func (s *raw) call(ctx context.Context, tool, arguments string, each func(*message, string) error) (*message, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of a stream that is not read to its end
	s.request++
	id := strconv.Itoa(s.request)
	response, err := s.post(ctx, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+arguments+`,"_meta":{"progressToken":`+id+`}}}`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := s.read(response, each)
	switch {
	case err != nil:
		return nil, err
	case string(answer.ID) != id:
		return nil, wrong("the answer to %s has the id %s", id, answer.ID)
	case answer.Error != nil:
		return nil, &failure{kind: Broken, text: string(answer.Error)}
	}
	return answer, nil
}

// notify posts a message that has no answer.
func (s *raw) notify(ctx context.Context, text string) error {
	response, err := s.post(ctx, text)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		return wrong("a message without an answer got %s", response.Status)
	}
	return nil
}

// end ends the session.
func (s *raw) end(ctx context.Context, lives bool) {
	if !lives {
		return
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, s.client.swarm.options.URL, http.NoBody)
	if err != nil {
		return
	}
	if response, err := s.do(request); err == nil {
		_ = response.Body.Close()
	}
}

func (s *raw) post(ctx context.Context, text string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.client.swarm.options.URL, strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.GetBody = nil // so that the HTTP client sends nothing twice by itself
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	return s.do(request)
}

// do makes a request. Its errors say what the status means.
func (s *raw) do(request *http.Request) (*http.Response, error) {
	if s.id != "" {
		request.Header.Set(headerSession, s.id)
		request.Header.Set(headerVersion, revision)
	}
	response, err := s.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < http.StatusBadRequest {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 500)) // the status says enough
	return nil, &failure{kind: kindOf(response.StatusCode), text: fmt.Sprintf("%s %s: %s", request.Method, response.Status, body)}
}

// read reads messages until one is an answer.
func (s *raw) read(response *http.Response, each func(*message, string) error) (*message, error) {
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind != "text/event-stream" {
		body, err := io.ReadAll(io.LimitReader(response.Body, mostBytes))
		if err != nil {
			return nil, err
		}
		return parse(body)
	}
	for events := rpc.NewEventReader(response.Body, mostBytes); ; {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			return nil, errNoAnswer
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(event.Data)) == 0 {
			continue
		}
		m, err := parse(event.Data)
		if err != nil || m.Method == "" {
			return m, err
		}
		if each != nil {
			if err := each(m, events.LastID()); err != nil {
				return nil, err
			}
		}
	}
}

func parse(text []byte) (*message, error) {
	m := new(message)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, wrong("%.200q is not a message: %v", text, err)
	}
	return m, nil
}

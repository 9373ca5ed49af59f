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

// session is one session of a client.
type session struct {
	client  *client
	id      string
	request int    // the id of the last request
	process string // which the session has; empty before the first answer of tick
	// least and most are how many calls of tick the process has executed. They differ after calls of which the
	// client does not know whether they were executed. The network may hold such a call back, and deliver it when others have been
	// answered, so the difference stays until the count shows that it was executed.
	least, most int
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
func (c *client) initialize(ctx context.Context) (*session, error) {
	s := &session{client: c}
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
		return nil, &failure{Wrong, fmt.Sprintf("the answer to initialize has the id %s", answer.ID)}
	}
	if s.id = response.Header.Get(headerSession); s.id == "" {
		return nil, &failure{Wrong, "the answer to initialize has no session id"}
	}
	return s, s.notify(ctx, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// tick calls tick, and compares the answer with those before.
func (s *session) tick(ctx context.Context) error {
	word := fmt.Sprintf("%d/%d", s.client.number, s.request+1)
	answer, err := s.call(ctx, "tick", `{"text":"`+word+`"}`, nil)
	if failed, ok := errors.AsType[*failure](err); !ok && err != nil || ok && failed.kind == Broken {
		s.most++
	}
	if err != nil {
		return err
	}
	s.client.swarm.count(func(r *Report) { r.Calls++ })
	return s.checkTick(answer.text(), word)
}

func (s *session) checkTick(text, word string) error {
	fields := strings.Fields(text) // host, nonce, count, word
	if len(fields) != 4 || fields[3] != word {
		return &failure{Wrong, fmt.Sprintf("tick answered %q to %q", text, word)}
	}
	process := fields[0] + " " + fields[1]
	if s.process != "" && process != s.process {
		return &failure{Wrong, fmt.Sprintf("process %s answered in a session of process %s", process, s.process)}
	}
	count, err := strconv.Atoi(fields[2])
	if err != nil || count < s.least+1 || count > s.most+1 {
		return &failure{Wrong, fmt.Sprintf("the process has executed %s calls, and the session has made %d to %d", fields[2], s.least+1, s.most+1)}
	}
	s.process, s.least, s.most = process, count, s.most+1
	s.client.noteOwner(fields[0])
	s.client.noteAnswer()
	return nil
}

// question has the server ask the client something during a call.
func (s *session) question(ctx context.Context) error {
	asked := 0
	answer, err := s.call(ctx, "ask", `{"text":"why?"}`, func(m *message, _ string) error {
		if m.Method != "elicitation/create" {
			return nil
		}
		asked++
		return s.notify(ctx, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"action":"accept","content":{}}}`)
	})
	switch {
	case err != nil:
		return err
	case asked != 1 || !strings.Contains(answer.text(), `"accept"`):
		return &failure{Wrong, fmt.Sprintf("the server asked %d times, and says %q", asked, answer.text())}
	}
	s.client.swarm.count(func(r *Report) { r.Questions++ })
	return nil
}

// cancel cancels a call that has begun. Its stream ends without an answer.
func (s *session) cancel(ctx context.Context) error {
	begun := false
	answer, err := s.call(ctx, "sleep", `{"ms":600000,"text":"asleep"}`, func(*message, string) error {
		begun = true
		return s.notify(ctx, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+strconv.Itoa(s.request)+`}}`)
	})
	switch {
	case begun && errors.Is(err, errNoAnswer):
		s.client.swarm.count(func(r *Report) { r.Cancelled++ })
		return nil
	case err != nil:
		return err
	}
	return &failure{Wrong, fmt.Sprintf("a cancelled call was answered %q", answer.text())}
}

// streamed is how many progress notifications a stream has.
const streamed = 20

// stream reads progress, cuts the stream after some of it, and resumes it, which may be at another pod.
func (s *session) stream(ctx context.Context) error {
	cut, seen, last := 1+s.client.random.IntN(streamed-2), 0, ""
	next := func(m *message, id string) error {
		if m.Method != "notifications/progress" {
			return nil
		}
		if int(m.Params.Progress) != seen {
			return &failure{Wrong, fmt.Sprintf("progress %v came in the place of %d", m.Params.Progress, seen)}
		}
		seen, last = seen+1, id
		return nil
	}
	answer, err := s.call(ctx, "burst", fmt.Sprintf(`{"n":%d}`, streamed), func(m *message, id string) error {
		if err := next(m, id); err != nil {
			return err
		}
		if seen == cut && last != "" {
			return errCut
		}
		return nil
	})
	resumed := errors.Is(err, errCut)
	if resumed {
		answer, err = s.resume(ctx, &last, next)
	}
	switch {
	case err != nil:
		return err
	case answer.text() != "done" || seen != streamed:
		return &failure{Wrong, fmt.Sprintf("a stream ended with %q after %d of %d notifications", answer.text(), seen, streamed)}
	}
	s.client.swarm.count(func(r *Report) {
		r.Streams++
		if resumed {
			r.Resumed++
		}
	})
	return nil
}

// errCut ends the reading of a stream that is to be resumed, and errNoAnswer is of one that ended before the answer.
var (
	errCut      = errors.New("the client has cut the stream")
	errNoAnswer = errors.New("the stream ended without an answer")
)

// resume goes on with a stream after the last event, until it has the answer. A stream that breaks again is
// resumed again.
func (s *session) resume(ctx context.Context, last *string, each func(*message, string) error) (*message, error) {
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

func (s *session) listen(ctx context.Context, last string, each func(*message, string) error) (*message, error) {
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
func (s *session) call(ctx context.Context, tool, arguments string, each func(*message, string) error) (*message, error) {
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
		return nil, &failure{Wrong, fmt.Sprintf("the answer to %s has the id %s", id, answer.ID)}
	case answer.Error != nil:
		return nil, &failure{Broken, string(answer.Error)}
	}
	return answer, nil
}

// notify posts a message that has no answer.
func (s *session) notify(ctx context.Context, text string) error {
	response, err := s.post(ctx, text)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		return &failure{Wrong, "a message without an answer got " + response.Status}
	}
	return nil
}

// end ends the session.
func (s *session) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.client.swarm.options.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, s.client.swarm.options.URL, http.NoBody)
	if err != nil {
		return
	}
	if response, err := s.do(request); err == nil {
		_ = response.Body.Close()
	}
}

func (s *session) post(ctx context.Context, text string) (*http.Response, error) {
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
func (s *session) do(request *http.Request) (*http.Response, error) {
	if s.id != "" {
		request.Header.Set(headerSession, s.id)
		request.Header.Set(headerVersion, revision)
	}
	response, err := s.client.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < http.StatusBadRequest {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 500)) // the status says enough
	kinds := map[int]Kind{http.StatusNotFound: Over, http.StatusServiceUnavailable: Refused, http.StatusBadGateway: Broken}
	kind, known := kinds[response.StatusCode]
	if !known {
		kind = Wrong
	}
	return nil, &failure{kind, fmt.Sprintf("%s %s: %s", request.Method, response.Status, body)}
}

// read reads messages until one is an answer.
func (s *session) read(response *http.Response, each func(*message, string) error) (*message, error) {
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
		return nil, &failure{Wrong, fmt.Sprintf("%.200q is no message: %v", text, err)}
	}
	return m, nil
}

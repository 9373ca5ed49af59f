package relay

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestBegun: the body is needed until the answer begins, and no longer.
func TestBegun(t *testing.T) {
	finish := make(chan struct{})
	o, e := pair(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/die" {
			hangUp(w)
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-finish
	})
	for name, test := range map[string]struct {
		target string
		size   int
	}{"small": {"/", 1 << 10}, "large": {"/", 1 << 20}, "without an answer": {"/die", 1 << 10}} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan struct{}, 10)
			request := &Request{Method: "POST", Target: test.target, Host: "x", Body: make([]byte, test.size)}
			request.Begun = func() { begun <- struct{}{} }
			over := make(chan error, 1)
			go func() {
				_, err := direct(t.Context(), e.relay, o.Owner, request)
				over <- err
			}()
			if test.target == "/die" {
				if err := <-over; err == nil || len(begun) != 0 {
					t.Errorf("begun %d times, %v", len(begun), err)
				}
				return
			}
			eventually(t, "the answer begins", func() bool { return len(begun) == 1 })
			<-begun
			finish <- struct{}{}
			if err := <-over; err != nil || len(begun) != 0 {
				t.Errorf("begun %d times more, %v", len(begun), err)
			}
		})
	}
}

func TestForward(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // net/http drops the rest of a body when an answer begins
		_, _ = w.Write(body)
	}
	cases := map[string]struct {
		method, target string
		body           io.Reader
		handler        http.HandlerFunc
		status         int
		text           string
	}{
		"call": {method: "POST", target: "/mcp?x=1", body: strings.NewReader("hello"), handler: func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprint(w, r.Method, r.URL.RequestURI(), r.ContentLength, string(body))
		}, status: 200, text: "POST/mcp?x=15hello"},
		"without body":   {method: "POST", target: "/mcp", handler: echo, status: 200},
		"30 KiB":         {method: "POST", target: "/mcp", body: strings.NewReader(large[:30<<10]), handler: echo, status: 200, text: large[:30<<10]},
		"1 MiB":          {method: "POST", target: "/mcp", body: strings.NewReader(large), handler: echo, status: 200, text: large},
		"1 MiB, chunked": {method: "POST", target: "/mcp", body: io.MultiReader(strings.NewReader(large)), handler: echo, status: 200, text: large},
		"small, chunked": {method: "POST", target: "/mcp", body: io.MultiReader(strings.NewReader("hello")), handler: echo, status: 200, text: "hello"},
		"1 MiB, length": {method: "GET", target: "/", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(large)))
			_, _ = io.WriteString(w, large)
		}, status: 200, text: large},
		"no content":   {method: "DELETE", target: "/mcp", handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, status: 204},
		"not modified": {method: "GET", target: "/", handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, status: 304},
		"error":        {method: "GET", target: "/", handler: http.NotFound, status: 404, text: "404 page not found\n"},
		"informational": {method: "GET", target: "/", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusProcessing)
			_, _ = io.WriteString(w, "after hints")
		}, status: 200, text: "after hints"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o, e := pair(t, c.handler)
			for range 3 {
				if seeker, ok := c.body.(io.Seeker); ok {
					_, _ = seeker.Seek(0, io.SeekStart)
				}
				response, text, err := do(t, c.method, e.URL+c.target, c.body)
				if err != nil || response.StatusCode != c.status || text != c.text {
					t.Fatalf("answer is %d %.100q (%d bytes) %v, want %d %.100q", response.StatusCode, text, len(text), err, c.status, c.text)
				}
				if err := e.forwarded(t); err != nil {
					t.Errorf("Forward: %v", err)
				}
				if _, ok := c.body.(io.Seeker); !ok && c.body != nil {
					break
				}
			}
			if n := o.accepted(); n != 1 {
				t.Errorf("the owner has had %d connections, want 1 for all requests", n)
			}
		})
	}
}

func TestEventsArriveOneByOne(t *testing.T) {
	next := make(chan string)
	_, e := pair(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for event := range next {
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
		}
	})
	response, err := http.Get(e.URL) // returns when the head has come, before any event
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	reader := bufio.NewReader(response.Body)
	if n := e.relay.Streams(); n != 1 {
		t.Errorf("%d streams are open, want 1", n)
	}
	for i := range 300 {
		event := fmt.Sprintf("data: %d%s\n\n", i, strings.Repeat("x", i*i)) // up to 89 KiB
		next <- event
		got := make([]byte, len(event))
		if _, err := io.ReadFull(reader, got); err != nil || string(got) != event {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	close(next)
	if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 {
		t.Errorf("after the last event: %q %v", rest, err)
	}
	if err := e.forwarded(t); err != nil {
		t.Errorf("Forward: %v", err)
	}
}

// TestPiecesOfUnknownLengthDoNotWait is for answers that are no event streams.
func TestPiecesOfUnknownLengthDoNotWait(t *testing.T) {
	more := make(chan struct{})
	_, e := pair(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "one")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-more:
		case <-r.Context().Done():
		}
	})
	response, err := http.Get(e.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got := make([]byte, 3)
	if _, err := io.ReadFull(response.Body, got); err != nil {
		t.Error(err)
	}
	close(more)
}

func TestClientLeaves(t *testing.T) {
	begun, gone := make(chan struct{}, 1), make(chan struct{}, 1)
	_, e := pair(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
		}
		begun <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	})
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		t.Run(method, func(t *testing.T) {
			client := &http.Client{Transport: &http.Transport{}}
			ctx, leave := context.WithCancel(t.Context())
			request, _ := http.NewRequestWithContext(ctx, method, e.URL, nil)
			go func() {
				if response, err := client.Do(request); err == nil {
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
				}
			}()
			select {
			case <-begun:
			case err := <-e.errors:
				t.Fatalf("Forward: %v", err)
			}
			leave()
			select {
			case <-gone:
			case <-time.After(5 * time.Second):
				t.Fatal("the owner does not notice that the client has left")
			}
			if err := e.forwarded(t); !errors.Is(err, ErrClient) {
				t.Errorf("error is %v, want ErrClient", err)
			}
			if n := e.relay.Connections(); n != 0 {
				t.Errorf("%d connections are left", n)
			}
		})
	}
}

func TestClientDoesNotRead(t *testing.T) {
	gone := make(chan struct{})
	o := startOwner(t, func(w http.ResponseWriter, _ *http.Request) {
		defer close(gone)
		for piece := make([]byte, 1<<20); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	e := startEntry(t, o.Owner, Options{Handshake: handshake, WriteTimeout: 200 * time.Millisecond})
	response, err := http.Get(e.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := e.forwarded(t); !errors.Is(err, ErrClient) {
		t.Errorf("error is %v, want ErrClient", err)
	}
	<-gone
}

func TestBodyBreaksOff(t *testing.T) {
	for name, length := range map[string]int64{"length": 1 << 20, "chunked": -1} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan error, 1)
			o, e := pair(t, func(_ http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				seen <- err
			})
			broken := errors.New("broken")
			rest := io.MultiReader(bytes.NewReader(make([]byte, 100<<10)), failing{broken})
			_, err := direct(t.Context(), e.relay, o.Owner, &Request{Method: "POST", Target: "/", Host: "x", Rest: rest, ContentLength: length})
			if !errors.Is(err, ErrBody) || !errors.Is(err, broken) {
				t.Errorf("error is %v, want ErrBody", err)
			}
			if err := <-seen; err == nil {
				t.Error("the owner takes a part of the body for the whole")
			}
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestBodyIsNeverLongerThanSaid(t *testing.T) {
	var requests atomic.Int32
	o, e := pair(t, func(_ http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
	})
	rest := strings.NewReader("abcPOST /smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	for range 2 {
		w, err := direct(t.Context(), e.relay, o.Owner, &Request{Method: "POST", Target: "/", Host: "x", Rest: rest, ContentLength: 3})
		if err != nil || w.Code != http.StatusOK {
			t.Errorf("answer is %d %v", w.Code, err)
		}
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("the owner saw %d requests, want 2", n)
	}
}

func TestHeaders(t *testing.T) {
	var got http.Header
	_, e := pair(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		header := w.Header()
		header.Set("Connection", "X-Hop")
		header.Set("Keep-Alive", "timeout=5")
		header.Set("Proxy-Authenticate", "Basic")
		header.Set("Upgrade", "h2c")
		header.Set("X-Hop", "1")
		header.Set("Slipway-Peer-Secret", "1")
		header["X-Twice"] = []string{"a", "b"}
		header["Content-Type"] = nil
		header["Date"] = nil
		_, _ = io.WriteString(w, "<html>")
	})
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL, strings.NewReader("x"))
	request.Header = http.Header{
		"Connection": {"x-named"}, "X-Named": {"1"}, "Te": {"trailers"}, "Proxy-Authorization": {"x"}, "Expect": {"100-continue"},
		"X-Twice": {"a", "b"}, "Slipway-Peer-Client": {"10.0.0.1"}, "Origin": {"http://x"}, "User-Agent": {"test"}, "Accept-Encoding": {"identity"},
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	want := http.Header{
		"X-Twice": {"a", "b"}, "Slipway-Peer-Client": {"10.0.0.1"}, "Origin": {"http://x"}, "User-Agent": {"test"},
		"Content-Length": {"1"}, "Accept-Encoding": {"identity"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers at the owner (-want +got):\n%s", diff)
	}
	response.Header.Del("Date") // the entry's
	want = http.Header{"X-Twice": {"a", "b"}, "Content-Length": {"6"}}
	if diff := cmp.Diff(want, response.Header); diff != "" {
		t.Errorf("headers at the client (-want +got):\n%s", diff)
	}
}

func TestMalformed(t *testing.T) {
	o, e := pair(t, func(http.ResponseWriter, *http.Request) { t.Error("the owner got a request") })
	for name, r := range map[string]Request{
		"method":       {Method: "GET / HTTP/1.1\r\n\r\nGET", Target: "/", Host: "x"},
		"no method":    {Target: "/", Host: "x"},
		"target":       {Method: "GET", Target: "/ HTTP/1.1\r\nX: y", Host: "x"},
		"no target":    {Method: "GET", Host: "x"},
		"host":         {Method: "GET", Target: "/", Host: "x\r\nX: y"},
		"header name":  {Method: "GET", Target: "/", Host: "x", Header: http.Header{"X: y\r\nZ": {"1"}}},
		"header value": {Method: "GET", Target: "/", Host: "x", Header: http.Header{"X": {"ok", "1\r\n\r\nGET / HTTP/1.1"}}},
		"line feed":    {Method: "GET", Target: "/", Host: "x", Header: http.Header{"X": {"1\nY: 2"}}},
		"length":       {Method: "POST", Target: "/", Host: "x", Body: []byte("abc"), Rest: strings.NewReader(""), ContentLength: 2},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := direct(t.Context(), e.relay, o.Owner, &r); !errors.Is(err, ErrMalformed) {
				t.Errorf("error is %v, want ErrMalformed", err)
			}
		})
	}
}

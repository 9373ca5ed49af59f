package rpc

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func readEvents(stream io.Reader, limit int) (got []string, err error) {
	reader := NewEventReader(stream, limit)
	for {
		event, err := reader.Next()
		if err != nil {
			return got, err
		}
		got = append(got, event.Type+"="+string(event.Data))
	}
}

func TestEventReader(t *testing.T) {
	for name, test := range map[string]struct {
		stream string
		want   []string
	}{
		"E-03 message":               {"event: message\ndata: {}\n\n", []string{"message={}"}},
		"R30 without a type":         {"data: {}\n\n", []string{"message={}"}},
		"CRLF":                       {"event: endpoint\r\ndata: /m\r\n\r\n", []string{"endpoint=/m"}},
		"CR":                         {"event: endpoint\rdata: /m\r\rdata: 2\r\r", []string{"endpoint=/m", "message=2"}},
		"mixed line ends":            {"data: 1\r\n\ndata: 2\n\r\n", []string{"message=1", "message=2"}},
		"several data lines":         {"data: a\ndata:b\ndata\ndata:  c\n\n", []string{"message=a\nb\n\n c"}},
		"comments and other fields":  {": hello\n\nid: 1\nretry: 5\nfoo: bar\n:\ndata: x\n\n", []string{"message=x"}},
		"byte order mark":            {"\xef\xbb\xbfdata: x\n\n", []string{"message=x"}},
		"half a byte order mark":     {"\xef\xbbdata: x\n\ndata: y\n\n", []string{"message=y"}},
		"T-22 priming":               {"id: 1\ndata:\n\nid: 2\ndata: x\n\n", []string{"message=x"}},
		"type without data is reset": {"event: a\n\ndata: x\n\n", []string{"message=x"}},
		"empty type":                 {"event:\ndata: x\n\n", []string{"message=x"}},
		"breaks off":                 {"data: x\n\ndata: y\n", []string{"message=x"}},
		"R42 runes":                  {"data: \u00a0\u200d😀\n\n", []string{"message=\u00a0\u200d😀"}},
		"empty":                      {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			for way, stream := range map[string]io.Reader{
				"at once": strings.NewReader(test.stream), "byte by byte": iotest.OneByteReader(strings.NewReader(test.stream)),
			} {
				if got, err := readEvents(stream, 1<<10); !errors.Is(err, io.EOF) || !reflect.DeepEqual(got, test.want) {
					t.Errorf("%s: got %q, %v, want %q", way, got, err, test.want)
				}
			}
		})
	}
}

// An event is there as soon as its last byte is, also if that is a CR.
func TestEventReaderDoesNotWait(t *testing.T) {
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r", "\r\n\r"} {
		in, out := io.Pipe()
		go func() { _, _ = io.WriteString(out, "data: x"+end) }()
		if event, err := NewEventReader(in, 100).Next(); err != nil || string(event.Data) != "x" {
			t.Errorf("%q: got %q, %v", end, event.Data, err)
		}
		_ = in.Close()
	}
}

func TestEventReaderIsBounded(t *testing.T) {
	const limit = 1000
	endless := func(unit string) io.Reader { return io.MultiReader(strings.NewReader(strings.Repeat(unit, 100*limit))) }
	for name, test := range map[string]struct {
		stream io.Reader
		want   error
	}{
		"just so":              {strings.NewReader("data: " + strings.Repeat("x", limit) + "\n\n"), io.EOF},
		"one more":             {strings.NewReader("data: " + strings.Repeat("x", limit+1) + "\n\n"), ErrEventTooLarge},
		"line without end":     {endless("x"), ErrEventTooLarge},
		"comment without end":  {endless(": "), ErrEventTooLarge},
		"many data lines":      {endless("data: x\n"), ErrEventTooLarge},
		"many empty data":      {endless("data\n"), ErrEventTooLarge},
		"comments":             {endless(": hi\n\n"), io.EOF},
		"fields of no meaning": {endless("id: 1\n"), io.EOF},
		"failing":              {iotest.TimeoutReader(endless("id: 1\n")), iotest.ErrTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := readEvents(test.stream, limit); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// The reader asks before it takes memory for a large event, gives it back with the event, and
// ends if there is none.
func TestEventReaderAsks(t *testing.T) {
	const size, limit = 1 << 20, 4 << 20
	event := "data: " + strings.Repeat("x", size) + "\n\n"
	for name, stream := range map[string]string{
		"one line":      event,
		"several lines": "data: x\n" + event,
		"comment":       ":" + strings.Repeat("x", size) + "\n" + "data: " + strings.Repeat("x", 2*largeBuffer) + "\n\n",
	} {
		var held, most int
		reader := NewEventReader(strings.NewReader(stream), limit)
		reader.Bound(func(bytes int) error {
			held, most = bytes, max(most, bytes)
			return nil
		})
		if got, err := reader.Next(); err != nil || !got.Owned || held != 0 || most < size || most > 4*size {
			t.Errorf("%s: got %d bytes, owned: %v, %v; asked for %d bytes at most, has %d", name, len(got.Data), got.Owned, err, most, held)
		}
	}
	full := errors.New("full")
	reader := NewEventReader(strings.NewReader("data: small\n\n"+event), limit)
	reader.Bound(func(bytes int) error {
		if bytes > 0 {
			return full
		}
		return nil
	})
	if got, err := reader.Next(); err != nil || got.Owned {
		t.Errorf("a small event: owned: %v, %v", got.Owned, err)
	}
	if _, err := reader.Next(); !errors.Is(err, full) {
		t.Errorf("a large event: got %v", err)
	}
}

// reference reads a stream as the standard's text describes it, all at once.
func reference(stream string) (events []string) {
	stream = strings.TrimPrefix(stream, "\xef\xbb\xbf")
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(stream, "\n")
	var data []string
	kind := ""
	for _, line := range lines[:len(lines)-1] {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if text := strings.Join(data, "\n"); text != "" {
				if kind == "" {
					kind = "message"
				}
				events = append(events, kind+"="+text)
			}
			data, kind = nil, ""
		case name == "data":
			data = append(data, value)
		case name == "event":
			kind = value[:min(len(value), longestType)]
		}
	}
	return events
}

func FuzzEventReader(f *testing.F) {
	for _, seed := range []string{
		"event: endpoint\ndata: /m?s=1\n\nevent: message\ndata: {}\n\n", "data: a\r\ndata: b\r\r", ": c\n\nid\ndata\n\n", "\xef\xbb\xbfdata:x\n\n", "data: x",
		"event: endpoint\rdata: /m?s=1\r\rdata: {}\r\r", "data: a\r\n\rdata: b\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		want := reference(string(stream))
		for _, in := range []io.Reader{bytes.NewReader(stream), iotest.OneByteReader(bytes.NewReader(stream)), iotest.HalfReader(bytes.NewReader(stream))} {
			if got, err := readEvents(in, len(stream)+1); !errors.Is(err, io.EOF) || !reflect.DeepEqual(got, want) {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		}
		const limit = 8
		reader := NewEventReader(bytes.NewReader(stream), limit)
		for {
			event, err := reader.Next()
			if errors.Is(err, io.EOF) || errors.Is(err, ErrEventTooLarge) {
				return
			}
			if err != nil || len(event.Data) > limit {
				t.Fatalf("%d bytes are within a limit of %d, error %v", len(event.Data), limit, err)
			}
		}
	})
}

func BenchmarkEventReader(b *testing.B) {
	stream := []byte("event: message\ndata: " + strings.Repeat("x", 8<<20) + "\n\n")
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewEventReader(bytes.NewReader(stream), 16<<20).Next(); err != nil {
			b.Fatal(err)
		}
	}
}

// T-21, T-22: where a stream can go on, and when.
func TestEventReaderPlace(t *testing.T) {
	for name, test := range map[string]struct {
		stream, id string
		retry      time.Duration
	}{
		"none":              {"data: x\n\n", "", 0},
		"last of two":       {"id: 1\ndata: x\n\nid: 2\ndata: y\n\n", "2", 0},
		"stays":             {"id: 1\ndata: x\n\ndata: y\n\n", "1", 0},
		"is taken back":     {"id: 1\ndata: x\n\nid\ndata: y\n\n", "", 0},
		"priming":           {"id: s_0\nretry: 1500\ndata: \n\n", "s_0", 1500 * time.Millisecond},
		"event breaks off":  {"id: 1\ndata: x\n\nid: 2\ndata: y\n", "1", 0},
		"NUL":               {"id: 1\ndata: x\n\nid: a\x00\ndata: y\n\n", "", 0},
		"too long":          {"id: " + strings.Repeat("x", longestID+1) + "\n\n", "", 0},
		"retry is a number": {"retry: 5s\n\nretry: -1\n\n", "", 0},
		"retry overflows":   {"retry: 99999999999999999999\n\n", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			reader := NewEventReader(strings.NewReader(test.stream), 8<<10)
			for {
				if _, err := reader.Next(); err != nil {
					break
				}
			}
			if reader.LastID() != test.id || reader.Retry() != test.retry {
				t.Errorf("got %q, %v, want %q, %v", reader.LastID(), reader.Retry(), test.id, test.retry)
			}
		})
	}
}
